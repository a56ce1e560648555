"""Euclidean lengths of float32 rows of 1024: a warp or a block for each row, reading is all."""

import torch
from torch import nn

rows = 65536
cols = 1024


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.vector_norm(x, dim=-1)


def get_inputs():
    return [torch.randn(rows, cols) * (torch.rand(rows, 1) + 0.5)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 256, "cols": 512}},
        {"name": "ragged", "sizes": {"rows": 257, "cols": 331}},
        {"name": "strided", "sizes": {"rows": 128, "cols": 512}, "layout": "strided"},
        {"name": "float16", "sizes": {"rows": 300, "cols": 200}, "dtype": "float16"},
    ]


ABOUT = {"category": "reduction", "regime": "memory"}


def cost(element_bytes=4):
    """Each element read once, squared and added; a length written for each row."""
    return {"bytes": (rows * cols + rows) * element_bytes, "flops": 2 * rows * cols}
