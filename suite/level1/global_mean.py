"""The mean of 64 million float32 numbers: partial sums of many blocks must be joined into one number."""

import torch
from torch import nn

rows = 8192
cols = 8192


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean()


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 1024}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "row_scaled", "sizes": {"rows": 128, "cols": 256}, "distribution": "row_scaled"},
    ]


ABOUT = {"category": "reduction", "regime": "memory"}


def cost(element_bytes=4):
    """Each element read and added once, one number written."""
    return {"bytes": (rows * cols + 1) * element_bytes, "flops": rows * cols}
