"""Sixty-four independent products in bfloat16: together they fill the chip, one alone would not."""

import torch
from torch import nn

batch = 64
rows = 1024
inner = 1024
cols = 1024


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.bmm(a, b)


def get_inputs():
    return [
        torch.randn(batch, rows, inner, dtype=torch.bfloat16),
        torch.randn(batch, inner, cols, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 8, "rows": 64, "inner": 128, "cols": 32}},
        {"name": "ragged", "sizes": {"batch": 5, "rows": 59, "inner": 139, "cols": 67}},
        {"name": "strided", "sizes": {"batch": 4, "rows": 48, "inner": 96, "cols": 80}, "layout": "strided"},
        {
            "name": "float32",
            "sizes": {"batch": 3, "rows": 64, "inner": 160, "cols": 96},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "matmul", "regime": "compute"}


def cost(element_bytes=2):
    """Both operands read, the products written; one multiplication and one addition a term."""
    elements = batch * (rows * inner + inner * cols + rows * cols)
    return {"bytes": elements * element_bytes, "flops": 2 * batch * rows * inner * cols}
