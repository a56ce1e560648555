"""A padded 3x3 convolution over 128 channels in float16: an implicit product that reuses pixels."""

import torch
from torch import nn

batch = 64
channels_in = 128
channels_out = 128
height = 56
width = 56


class Model(nn.Module):
    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        weight = torch.randn(channels_out, channels_in, 3, 3) / (9 * channels_in) ** 0.5
        self.weight = nn.Parameter(weight.to(torch.float16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv2d(x, self.weight, padding=1)


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
        {"name": "bfloat16", "sizes": aligned, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "conv", "regime": "compute"}


def cost(element_bytes=2):
    """Image and filters read, the map written; a quarter of the direct terms, as minimal filtering needs."""
    pixels = batch * height * width
    elements = pixels * (channels_in + channels_out) + 9 * channels_in * channels_out
    terms = batch * (3 * height - 2) * (3 * width - 2) * channels_in * channels_out
    return {"bytes": elements * element_bytes, "flops": 2 * terms // 4}
