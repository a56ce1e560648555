"""A value times the sigmoid of its gate, in bfloat16: two streams read in step, one written."""

import torch
from torch import nn

rows = 8192
cols = 8192


class Model(nn.Module):
    def forward(self, value: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return value * torch.sigmoid(gate)


def get_inputs():
    return [
        torch.randn(rows, cols, dtype=torch.bfloat16),
        torch.randn(rows, cols, dtype=torch.bfloat16) * 2,
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 1024}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 48, "cols": 1000}, "dtype": "float32"},
    ]


ABOUT = {"category": "elementwise", "regime": "memory"}


def cost(element_bytes=2):
    """Two tensors read, one written; exponential, sum and quotient for each element."""
    return {"bytes": 3 * rows * cols * element_bytes, "flops": 3 * rows * cols}
