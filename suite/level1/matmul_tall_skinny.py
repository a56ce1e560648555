"""Half a million rows times a narrow matrix: the small operand stays on the chip, the tall one streams."""

import torch
from torch import nn

rows = 524288
inner = 256
cols = 64


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
        {"name": "aligned", "sizes": {"rows": 1024, "inner": 128, "cols": 32}},
        {"name": "ragged", "sizes": {"rows": 1999, "inner": 83, "cols": 17}},
        {"name": "strided", "sizes": {"rows": 768, "inner": 96, "cols": 24}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 640, "inner": 128, "cols": 40}, "dtype": "float32"},
    ]


ABOUT = {"category": "matmul", "regime": "memory"}


def cost(element_bytes=2):
    """Both operands read, the product written; one multiplication and one addition a term."""
    elements = rows * inner + inner * cols + rows * cols
    return {"bytes": elements * element_bytes, "flops": 2 * rows * inner * cols}
