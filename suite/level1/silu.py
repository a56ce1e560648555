"""x * sigmoid(x) on the hidden layer of a large transformer: one exponential and one quotient an element."""

import torch
from torch import nn

rows = 8192
cols = 14336


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(x)


def get_inputs():
    return [torch.randn(rows, cols, dtype=torch.bfloat16) * 2]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 2048}},
        {"name": "ragged", "sizes": {"rows": 41, "cols": 1009}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "float16", "sizes": {"rows": 48, "cols": 1000}, "dtype": "float16"},
    ]


ABOUT = {"category": "elementwise", "regime": "memory"}


def cost(element_bytes=2):
    """x read, y written; exponential, sum and quotient for each element."""
    return {"bytes": 2 * rows * cols * element_bytes, "flops": 3 * rows * cols}
