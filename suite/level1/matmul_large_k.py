"""Very long sums into a small result: too few tiles for the chip unless each sum is split and joined."""

import torch
from torch import nn

rows = 256
inner = 262144
cols = 256


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
        {"name": "aligned", "sizes": {"rows": 32, "inner": 4096, "cols": 16}},
        {"name": "ragged", "sizes": {"rows": 19, "inner": 6007, "cols": 23}},
        {"name": "strided", "sizes": {"rows": 24, "inner": 2048, "cols": 32}, "layout": "strided"},
        {"name": "bfloat16", "sizes": {"rows": 16, "inner": 8192, "cols": 12}, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "matmul", "regime": "memory"}


def cost(element_bytes=2):
    """Both operands read, the product written; one multiplication and one addition a term."""
    elements = rows * inner + inner * cols + rows * cols
    return {"bytes": elements * element_bytes, "flops": 2 * rows * inner * cols}
