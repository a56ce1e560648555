"""A 3x3 convolution with holes: neighbouring outputs share no input pixels, but outputs two apart do."""

import torch
from torch import nn

batch = 64
channels_in = 128
channels_out = 128
height = 64
width = 64


class Model(nn.Module):
    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        weight = torch.randn(channels_out, channels_in, 3, 3) / (9 * channels_in) ** 0.5
        self.weight = nn.Parameter(weight.to(torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv2d(x, self.weight, padding=2, dilation=2)


def get_inputs():
    return [torch.randn(batch, channels_in, height, width, dtype=torch.bfloat16)]


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
        {"name": "float16", "sizes": aligned, "dtype": "float16"},
    ]


ABOUT = {"category": "conv", "regime": "compute"}


def cost(element_bytes=2):
    """Image and filters read, the map written; a quarter of the direct terms, as minimal filtering needs."""
    pixels = batch * height * width
    elements = pixels * (channels_in + channels_out) + 9 * channels_in * channels_out
    taps = max(height, 3 * height - 4) * max(width, 3 * width - 4)
    return {"bytes": elements * element_bytes, "flops": 2 * batch * taps * channels_in * channels_out // 4}
