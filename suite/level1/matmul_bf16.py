"""A bfloat16 product with the wide right side of a feed-forward layer: many tiles, unevenly divided."""

import torch
from torch import nn

rows = 4096
inner = 4096
cols = 14336


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs():
    return [
        torch.randn(rows, inner, dtype=torch.bfloat16),
        torch.randn(inner, cols, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "inner": 256, "cols": 512}},
        {"name": "ragged", "sizes": {"rows": 61, "inner": 257, "cols": 331}},
        {"name": "strided", "sizes": {"rows": 80, "inner": 192, "cols": 240}, "layout": "strided"},
        {"name": "transposed", "sizes": {"rows": 96, "inner": 128, "cols": 224}, "layout": "transposed"},
        {"name": "float16", "sizes": {"rows": 128, "inner": 160, "cols": 256}, "dtype": "float16"},
    ]


ABOUT = {"category": "matmul", "regime": "compute"}


def cost(element_bytes=2):
    """Both operands read, the product written; one multiplication and one addition a term."""
    elements = rows * inner + inner * cols + rows * cols
    return {"bytes": elements * element_bytes, "flops": 2 * rows * inner * cols}
