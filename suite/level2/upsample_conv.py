"""Each pixel doubled in both directions, then a 3x3 convolution, in float16.

Nine taps over doubled pixels are four over the small image: the large image need not exist.
"""

import torch
from torch import nn

batch = 32
channels_in = 128
channels_out = 128
height = 64
width = 64


class Model(nn.Module):
    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        weight = torch.randn(channels_out, channels_in, 3, 3) / (9 * channels_in) ** 0.5
        self.weight = nn.Parameter(weight.to(torch.float16))
        self.bias = nn.Parameter(torch.randn(channels_out).to(torch.float16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        doubled = nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")
        return nn.functional.conv2d(doubled, self.weight, self.bias, padding=1)


def get_inputs():
    return [torch.randn(batch, channels_in, height, width, dtype=torch.float16)]


def get_init_inputs():
    return [channels_in, channels_out]


def cases():
    aligned = {"batch": 2, "channels_in": 16, "channels_out": 16, "height": 16, "width": 8}
    ragged = {"batch": 3, "channels_in": 13, "channels_out": 11, "height": 7, "width": 9}
    strided = {"batch": 2, "channels_in": 8, "channels_out": 12, "height": 6, "width": 10}
    return [
        {"name": "aligned", "sizes": aligned},
        {"name": "ragged", "sizes": ragged},
        {"name": "strided", "sizes": strided, "layout": "strided"},
        {"name": "bfloat16", "sizes": aligned, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "conv", "regime": "compute"}


def cost(element_bytes=2):
    """Image, filters and bias read, the map written; a quarter of the terms that added filters have."""
    pixels = batch * height * width
    elements = pixels * (channels_in + 4 * channels_out) + (9 * channels_in + 1) * channels_out
    terms = batch * (4 * height - 2) * (4 * width - 2) * channels_in * channels_out
    return {"bytes": elements * element_bytes, "flops": 2 * terms // 4}
