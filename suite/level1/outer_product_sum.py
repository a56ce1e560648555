"""Sums of sixteen outer products each, written as a broadcast: step by step, each goes through memory."""

import torch
from torch import nn

batch = 32
pairs = 16
rows = 1024
cols = 1024


class Model(nn.Module):
    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return (left.unsqueeze(3) * right.unsqueeze(2)).sum(1)


def get_inputs():
    return [torch.randn(batch, pairs, rows), torch.randn(batch, pairs, cols)]


def get_init_inputs():
    return []


def cases():
    aligned = {"batch": 4, "pairs": 8, "rows": 64, "cols": 128}
    ragged = {"batch": 3, "pairs": 11, "rows": 59, "cols": 97}
    strided = {"batch": 2, "pairs": 6, "rows": 80, "cols": 72}
    return [
        {"name": "aligned", "sizes": aligned},
        {"name": "ragged", "sizes": ragged},
        {"name": "strided", "sizes": strided, "layout": "strided"},
        {"name": "bfloat16", "sizes": aligned, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "matmul", "regime": "memory"}

PRECISION = {"allow_tf32": False}


def cost(element_bytes=4):
    """The vectors read, the sums written; one multiplication and one addition a term."""
    elements = batch * (pairs * (rows + cols) + rows * cols)
    return {"bytes": elements * element_bytes, "flops": 2 * batch * pairs * rows * cols}
