"""A transposed convolution that doubles height and width: each output sees four of the sixteen taps."""

import torch
from torch import nn

batch = 64
channels_in = 128
channels_out = 64
height = 56
width = 56


class Model(nn.Module):
    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        weight = torch.randn(channels_in, channels_out, 4, 4) / (4 * channels_in) ** 0.5
        self.weight = nn.Parameter(weight.to(torch.float16))
        self.bias = nn.Parameter(torch.randn(channels_out).to(torch.float16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv_transpose2d(x, self.weight, self.bias, stride=2, padding=1)


def get_inputs():
    return [torch.randn(batch, channels_in, height, width, dtype=torch.float16)]


def get_init_inputs():
    return [channels_in, channels_out]


def cases():
    aligned = {"batch": 2, "channels_in": 16, "channels_out": 8, "height": 16, "width": 16}
    ragged = {"batch": 3, "channels_in": 13, "channels_out": 7, "height": 11, "width": 9}
    strided = {"batch": 2, "channels_in": 8, "channels_out": 12, "height": 12, "width": 10}
    return [
        {"name": "aligned", "sizes": aligned},
        {"name": "ragged", "sizes": ragged},
        {"name": "strided", "sizes": strided, "layout": "strided"},
        {"name": "bfloat16", "sizes": aligned, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "conv", "regime": "compute"}


def cost(element_bytes=2):
    """Image, filters and bias read, the map written; a quarter of the direct terms, below any known form."""
    read = batch * channels_in * height * width + (16 * channels_in + 1) * channels_out
    written = 4 * batch * channels_out * height * width
    terms = batch * (4 * height - 2) * (4 * width - 2) * channels_in * channels_out
    return {"bytes": (read + written) * element_bytes, "flops": 2 * terms // 4}
