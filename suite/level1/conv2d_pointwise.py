"""A 1x1 convolution on maps stored channel by channel: a product whose inner dimension is far apart."""

import torch
from torch import nn

batch = 64
channels_in = 256
channels_out = 256
height = 56
width = 56


class Model(nn.Module):
    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        weight = torch.randn(channels_out, channels_in, 1, 1) / channels_in**0.5
        self.weight = nn.Parameter(weight.to(torch.float16))
        self.bias = nn.Parameter(torch.randn(channels_out).to(torch.float16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv2d(x, self.weight, self.bias)


def get_inputs():
    return [torch.randn(batch, channels_in, height, width, dtype=torch.float16)]


def get_init_inputs():
    return [channels_in, channels_out]


def cases():
    aligned = {"batch": 2, "channels_in": 64, "channels_out": 32, "height": 16, "width": 16}
    ragged = {"batch": 3, "channels_in": 43, "channels_out": 37, "height": 13, "width": 11}
    strided = {"batch": 2, "channels_in": 32, "channels_out": 48, "height": 12, "width": 20}
    return [
        {"name": "aligned", "sizes": aligned},
        {"name": "ragged", "sizes": ragged},
        {"name": "strided", "sizes": strided, "layout": "strided"},
        {"name": "bfloat16", "sizes": aligned, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "conv", "regime": "memory"}


def cost(element_bytes=2):
    """Image, filters and bias read, the map written; one multiplication and one addition a term."""
    pixels = batch * height * width
    elements = pixels * (channels_in + channels_out) + (channels_in + 1) * channels_out
    return {"bytes": elements * element_bytes, "flops": 2 * pixels * channels_in * channels_out}
