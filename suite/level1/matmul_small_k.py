"""A product whose inner dimension is only 64: there is little to sum, and writing the result decides."""

import torch
from torch import nn

rows = 16384
inner = 64
cols = 8192


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs():
    return [
        torch.randn(rows, inner, dtype=torch.float16),
        torch.randn(inner, cols, dtype=torch.float16),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 512, "inner": 32, "cols": 256}},
        {"name": "ragged", "sizes": {"rows": 251, "inner": 19, "cols": 409}},
        {"name": "strided", "sizes": {"rows": 320, "inner": 48, "cols": 160}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 192, "inner": 64, "cols": 320}, "dtype": "float32"},
    ]


ABOUT = {"category": "matmul", "regime": "memory"}


def cost(element_bytes=2):
    """Both operands read, the product written; one multiplication and one addition a term."""
    elements = rows * inner + inner * cols + rows * cols
    return {"bytes": elements * element_bytes, "flops": 2 * rows * inner * cols}
