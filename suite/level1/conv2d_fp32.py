"""A 3x3 convolution in true float32: tensor cores are ruled out, so transforming tiles may pay off."""

import torch
from torch import nn

batch = 64
channels_in = 64
channels_out = 64
height = 56
width = 56


class Model(nn.Module):
    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels_out, channels_in, 3, 3) / (9 * channels_in) ** 0.5)
        self.bias = nn.Parameter(torch.randn(channels_out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv2d(x, self.weight, self.bias, padding=1)


def get_inputs():
    return [torch.randn(batch, channels_in, height, width)]


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

PRECISION = {"allow_tf32": False}


def cost(element_bytes=4):
    """Image, filters and bias read, the map written; a quarter of the direct terms: minimal filtering."""
    pixels = batch * height * width
    elements = pixels * (channels_in + channels_out) + (9 * channels_in + 1) * channels_out
    terms = batch * (3 * height - 2) * (3 * width - 2) * channels_in * channels_out
    return {"bytes": elements * element_bytes, "flops": 2 * terms // 4}
