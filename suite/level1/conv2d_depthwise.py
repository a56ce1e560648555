"""A 3x3 filter of its own for each channel: nine products an element, so moving the maps is the cost."""

import torch
from torch import nn

batch = 64
channels = 128
height = 112
width = 112


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter((torch.randn(channels, 1, 3, 3) / 3).to(torch.float16))
        self.bias = nn.Parameter(torch.randn(channels).to(torch.float16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv2d(x, self.weight, self.bias, padding=1, groups=x.shape[1])


def get_inputs():
    return [torch.randn(batch, channels, height, width, dtype=torch.float16)]


def get_init_inputs():
    return [channels]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "channels": 32, "height": 16, "width": 32}},
        {"name": "ragged", "sizes": {"batch": 3, "channels": 29, "height": 13, "width": 19}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "channels": 24, "height": 12, "width": 20},
            "layout": "strided",
        },
        {
            "name": "bfloat16",
            "sizes": {"batch": 2, "channels": 16, "height": 24, "width": 20},
            "dtype": "bfloat16",
        },
    ]


ABOUT = {"category": "conv", "regime": "memory"}


def cost(element_bytes=2):
    """Maps, filters and biases read, maps written; two operations for each tap that hits the image."""
    taps = batch * channels * (3 * height - 2) * (3 * width - 2)
    elements = 2 * batch * channels * height * width + 10 * channels
    return {"bytes": elements * element_bytes, "flops": 2 * taps}
