"""Sums down the columns of a float32 matrix: neighbouring threads read neighbours, the long way is split."""

import torch
from torch import nn

rows = 16384
cols = 8192


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(dim=0)


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 256, "cols": 512}},
        {"name": "ragged", "sizes": {"rows": 211, "cols": 503}},
        {"name": "strided", "sizes": {"rows": 128, "cols": 256}, "layout": "strided"},
        {"name": "bfloat16", "sizes": {"rows": 200, "cols": 600}, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "reduction", "regime": "memory"}


def cost(element_bytes=4):
    """Each element read and added once, a sum written for each column."""
    return {"bytes": (rows * cols + cols) * element_bytes, "flops": rows * cols}
