"""A 3x3 convolution, batch norm with stored statistics, ReLU: the norm is a scale and shift a channel."""

import torch
from torch import nn

batch = 64
channels_in = 128
channels_out = 128
height = 56
width = 56
eps = 1e-5


class Model(nn.Module):
    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        filters = torch.randn(channels_out, channels_in, 3, 3) / (9 * channels_in) ** 0.5
        self.filters = nn.Parameter(filters.to(torch.float16))
        self.weight = nn.Parameter((torch.rand(channels_out) + 0.5).to(torch.float16))
        self.bias = nn.Parameter(torch.randn(channels_out).to(torch.float16))
        self.register_buffer("mean", torch.randn(channels_out).to(torch.float16))
        self.register_buffer("variance", (torch.rand(channels_out) + 0.5).to(torch.float16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = nn.functional.conv2d(x, self.filters, padding=1)
        maps = nn.functional.batch_norm(maps, self.mean, self.variance, self.weight, self.bias, eps=eps)
        return torch.relu(maps)


def get_inputs():
    return [torch.randn(batch, channels_in, height, width, dtype=torch.float16)]


def get_init_inputs():
    return [channels_in, channels_out]


def cases():
    aligned = {"batch": 2, "channels_in": 16, "channels_out": 32, "height": 16, "width": 16}
    ragged = {"batch": 3, "channels_in": 13, "channels_out": 19, "height": 11, "width": 17}
    strided = {"batch": 2, "channels_in": 8, "channels_out": 16, "height": 12, "width": 20}
    return [
        {"name": "aligned", "sizes": aligned},
        {"name": "ragged", "sizes": ragged},
        {"name": "strided", "sizes": strided, "layout": "strided"},
        {"name": "float32", "sizes": aligned, "dtype": "float32"},
    ]


ABOUT = {"category": "conv", "regime": "compute"}


def cost(element_bytes=2):
    """Image, filters and four vectors read, the map written; a quarter of the direct terms."""
    pixels = batch * height * width
    elements = pixels * (channels_in + channels_out) + (9 * channels_in + 4) * channels_out
    terms = batch * (3 * height - 2) * (3 * width - 2) * channels_in * channels_out
    return {"bytes": elements * element_bytes, "flops": 2 * terms // 4}
