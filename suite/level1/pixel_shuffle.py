"""Four channels of a float16 map woven into one of twice the height and width: a copy, strides apart."""

import torch
from torch import nn

batch = 16
channels = 64
height = 128
width = 128
factor = 2


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.pixel_shuffle(x, factor)


def get_inputs():
    return [torch.randn(batch, channels * factor * factor, height, width, dtype=torch.float16)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "channels": 16, "height": 32, "width": 32}},
        {"name": "ragged", "sizes": {"batch": 3, "channels": 7, "height": 29, "width": 31}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "channels": 4, "height": 32, "width": 64},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"batch": 2, "channels": 5, "height": 30, "width": 40},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "index", "regime": "memory"}


def cost(element_bytes=2):
    """Each element read once and written once; no arithmetic."""
    elements = batch * channels * factor * factor * height * width
    return {"bytes": 2 * elements * element_bytes, "flops": 0}
