"""Quantise a float32 tensor to 8-bit floats (4 exponent bits, 3 mantissa bits) with one scale for all of it:
a maximum over everything first, then a cast. The codes come back as bytes, to be compared bit by bit."""

import torch
from torch import nn

rows = 4096
cols = 8192
largest = 448


class Model(nn.Module):
    """Returns the bytes of the 8-bit floats and the scale."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scale = x.float().abs().amax().clamp(min=1e-12) / largest
        narrow = (x.float() / scale).clamp(-largest, largest).to(torch.float8_e4m3fn)
        return narrow.view(torch.uint8), scale


def get_inputs():
    return [torch.randn(rows, cols) * (torch.rand(rows, 1) * 9.9 + 0.1)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 2048}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "mixture", "sizes": {"rows": 64, "cols": 1000}, "distribution": "mixture"},
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=4):
    """x read once, one byte written for each element, one scale."""
    return {"bytes": rows * cols * (element_bytes + 1) + 4, "flops": 2 * rows * cols}
