"""Variances of float32 rows with means of their own: squares minus the squared mean would lose digits."""

import torch
from torch import nn

rows = 32768
cols = 2048


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.var(x, dim=-1, correction=0)


def get_inputs():
    return [torch.randn(rows, cols) * (torch.rand(rows, 1) + 0.5) + 3 * torch.randn(rows, 1)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 256, "cols": 512}},
        {"name": "ragged", "sizes": {"rows": 257, "cols": 331}},
        {"name": "strided", "sizes": {"rows": 128, "cols": 512}, "layout": "strided"},
        {"name": "shifted", "sizes": {"rows": 200, "cols": 300}, "distribution": "shifted"},
    ]


ABOUT = {"category": "reduction", "regime": "memory"}


def cost(element_bytes=4):
    """Each element read once; difference, square and sum for each, a variance written for each row."""
    return {"bytes": (rows * cols + rows) * element_bytes, "flops": 3 * rows * cols}
