"""Softmax over rows of 32000 logits in bfloat16: maximum and sum in one pass, or a row kept in registers."""

import torch
from torch import nn

rows = 4096
cols = 32000


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(rows, cols, dtype=torch.bfloat16) * 3]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 4096}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 64, "cols": 1000}, "dtype": "float32"},
    ]


ABOUT = {"category": "softmax", "regime": "memory"}


def cost(element_bytes=2):
    """x read, y written; subtract, exponentiate, add, divide."""
    return {"bytes": 2 * rows * cols * element_bytes, "flops": 5 * rows * cols}
