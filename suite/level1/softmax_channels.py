"""Softmax over the channels of each pixel: what is reduced lies far apart, neighbours are independent."""

import torch
from torch import nn

batch = 16
channels = 128
height = 128
width = 128


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(batch, channels, height, width) * 2]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "channels": 64, "height": 32, "width": 32}},
        {"name": "ragged", "sizes": {"batch": 3, "channels": 37, "height": 29, "width": 31}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "channels": 32, "height": 16, "width": 64},
            "layout": "strided",
        },
        {
            "name": "bfloat16",
            "sizes": {"batch": 2, "channels": 50, "height": 30, "width": 40},
            "dtype": "bfloat16",
        },
    ]


ABOUT = {"category": "softmax", "regime": "memory"}


def cost(element_bytes=4):
    """x read, y written; maximum, difference, exponential, sum and quotient for each element."""
    elements = batch * channels * height * width
    return {"bytes": 2 * elements * element_bytes, "flops": 5 * elements}
