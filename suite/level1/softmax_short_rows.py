"""Softmax over a million bfloat16 rows of 64: a block for each is wasteful, a few lanes are enough."""

import torch
from torch import nn

rows = 1048576
cols = 64


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(rows, cols, dtype=torch.bfloat16) * 2]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 2048, "cols": 64}},
        {"name": "ragged", "sizes": {"rows": 1009, "cols": 67}},
        {"name": "strided", "sizes": {"rows": 1024, "cols": 64}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 1000, "cols": 50}, "dtype": "float32"},
    ]


ABOUT = {"category": "softmax", "regime": "memory"}


def cost(element_bytes=2):
    """x read, y written; maximum, difference, exponential, sum and quotient for each element."""
    return {"bytes": 2 * rows * cols * element_bytes, "flops": 5 * rows * cols}
