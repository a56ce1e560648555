"""Bfloat16 matrices copied with rows and columns swapped: reads or writes stride unless tiles are turned."""

import torch
from torch import nn

batch = 8
rows = 4096
cols = 4096


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2).clone(memory_format=torch.contiguous_format)


def get_inputs():
    return [torch.randn(batch, rows, cols, dtype=torch.bfloat16)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "rows": 256, "cols": 128}},
        {"name": "ragged", "sizes": {"batch": 3, "rows": 211, "cols": 97}},
        {"name": "strided", "sizes": {"batch": 2, "rows": 64, "cols": 128}, "layout": "strided"},
        {"name": "float32", "sizes": {"batch": 2, "rows": 100, "cols": 150}, "dtype": "float32"},
    ]


ABOUT = {"category": "index", "regime": "memory"}


def cost(element_bytes=2):
    """Each element read once and written once; no arithmetic."""
    return {"bytes": 2 * batch * rows * cols * element_bytes, "flops": 0}
