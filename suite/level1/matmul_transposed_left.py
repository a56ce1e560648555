"""A product whose left operand is stored transposed, as in a weight gradient: tiles are turned on load."""

import torch
from torch import nn

rows = 1024
inner = 65536
cols = 2048


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.transpose(0, 1) @ b


def get_inputs():
    return [
        torch.randn(inner, rows, dtype=torch.float16),
        torch.randn(inner, cols, dtype=torch.float16),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "inner": 512, "cols": 256}},
        {"name": "ragged", "sizes": {"rows": 71, "inner": 401, "cols": 113}},
        {"name": "strided", "sizes": {"rows": 80, "inner": 192, "cols": 96}, "layout": "strided"},
        {"name": "bfloat16", "sizes": {"rows": 128, "inner": 256, "cols": 160}, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "matmul", "regime": "compute"}


def cost(element_bytes=2):
    """Both operands read, the product written; one multiplication and one addition a term."""
    elements = rows * inner + inner * cols + rows * cols
    return {"bytes": elements * element_bytes, "flops": 2 * rows * inner * cols}
