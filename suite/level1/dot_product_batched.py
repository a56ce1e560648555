"""Scalar products of 16384 pairs of float32 vectors: two streams read once, one number for each pair."""

import torch
from torch import nn

rows = 16384
cols = 2048


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a * b).sum(dim=-1)


def get_inputs():
    return [torch.randn(rows, cols), torch.randn(rows, cols)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "cols": 512}},
        {"name": "ragged", "sizes": {"rows": 131, "cols": 331}},
        {"name": "strided", "sizes": {"rows": 128, "cols": 256}, "layout": "strided"},
        {"name": "bfloat16", "sizes": {"rows": 200, "cols": 300}, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "reduction", "regime": "memory"}


def cost(element_bytes=4):
    """Both vectors read once; a product and a sum for each pair of elements."""
    return {"bytes": (2 * rows * cols + rows) * element_bytes, "flops": 2 * rows * cols}
