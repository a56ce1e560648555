"""A gain and a bias for each channel of float16 feature maps: finding the channel takes a division."""

import torch
from torch import nn

batch = 64
channels = 256
height = 56
width = 56


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(channels, dtype=torch.float16) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels, dtype=torch.float16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gain[:, None, None] + self.bias[:, None, None]


def get_inputs():
    return [torch.randn(batch, channels, height, width, dtype=torch.float16)]


def get_init_inputs():
    return [channels]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 4, "channels": 32, "height": 32, "width": 32}},
        {"name": "ragged", "sizes": {"batch": 3, "channels": 23, "height": 29, "width": 31}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "channels": 16, "height": 16, "width": 64},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"batch": 2, "channels": 33, "height": 28, "width": 28},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "elementwise", "regime": "memory"}


def cost(element_bytes=2):
    """x, gains and biases read, y written; a product and a sum for each element."""
    elements = batch * channels * height * width
    return {"bytes": (2 * elements + 2 * channels) * element_bytes, "flops": 2 * elements}
