"""A bias for each column, exact GELU and a residual, in bfloat16: three steps, one trip through memory."""

import torch
from torch import nn

rows = 16384
cols = 4096


class Model(nn.Module):
    def __init__(self, cols: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(cols).to(torch.bfloat16))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(x + self.bias) + residual


def get_inputs():
    return [
        torch.randn(rows, cols, dtype=torch.bfloat16),
        torch.randn(rows, cols, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return [cols]


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "cols": 512}},
        {"name": "ragged", "sizes": {"rows": 61, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 96, "cols": 480}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 64, "cols": 600}, "dtype": "float32"},
    ]


ABOUT = {"category": "elementwise", "regime": "memory"}


def cost(element_bytes=2):
    """Two tensors and the bias read, one tensor written; about seven operations an element."""
    return {"bytes": (3 * rows * cols + cols) * element_bytes, "flops": 7 * rows * cols}
