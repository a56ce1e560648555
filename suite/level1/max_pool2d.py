"""The largest of each 3x3 window, every second pixel, in float16: windows overlap, padding never wins."""

import torch
from torch import nn

batch = 128
channels = 64
height = 112
width = 112


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.max_pool2d(x, kernel_size=3, stride=2, padding=1)


def get_inputs():
    # Shifted below zero: a border padded with zeros instead of nothing would win.
    return [torch.randn(batch, channels, height, width, dtype=torch.float16) - 1]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "channels": 16, "height": 32, "width": 32}},
        {"name": "ragged", "sizes": {"batch": 3, "channels": 13, "height": 29, "width": 37}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "channels": 12, "height": 28, "width": 20},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"batch": 2, "channels": 8, "height": 31, "width": 40},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "conv", "regime": "memory"}


def cost(element_bytes=2):
    """Maps read, a quarter of them written; each element compared once at least."""
    read = batch * channels * height * width
    written = batch * channels * ((height + 1) // 2) * ((width + 1) // 2)
    return {"bytes": (read + written) * element_bytes, "flops": read}
