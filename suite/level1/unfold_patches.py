"""Every 3x3 patch of bfloat16 feature maps laid out as a column: nine times as much is written as is read."""

import torch
from torch import nn

batch = 16
channels = 64
height = 128
width = 128
kernel = 3
padding = 1


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.unfold(x, kernel_size=kernel, padding=padding)


def get_inputs():
    return [torch.randn(batch, channels, height, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "channels": 8, "height": 32, "width": 64}},
        {"name": "ragged", "sizes": {"batch": 3, "channels": 5, "height": 37, "width": 41}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "channels": 4, "height": 32, "width": 32},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"batch": 2, "channels": 6, "height": 30, "width": 40},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "index", "regime": "memory"}


def cost(element_bytes=2):
    """Maps read once, patches written once; no arithmetic."""
    patches = (height + 2 * padding - kernel + 1) * (width + 2 * padding - kernel + 1)
    elements = height * width + kernel * kernel * patches
    return {"bytes": batch * channels * elements * element_bytes, "flops": 0}
