"""Sums over rows of 16384 bfloat16 numbers: the time goes into reading, and sums must be kept wider."""

import torch
from torch import nn

rows = 8192
cols = 16384


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(dim=-1)


def get_inputs():
    return [torch.randn(rows, cols, dtype=torch.bfloat16)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "cols": 2048}},
        {"name": "ragged", "sizes": {"rows": 131, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 128, "cols": 512}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 100, "cols": 1000}, "dtype": "float32"},
    ]


ABOUT = {"category": "reduction", "regime": "memory"}


def cost(element_bytes=2):
    """Each element read and added once, a sum written for each row."""
    return {"bytes": (rows * cols + rows) * element_bytes, "flops": rows * cols}
