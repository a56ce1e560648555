"""A residual added, then layer norm with weight and bias, in float16: the sum need never be written."""

import torch
from torch import nn

rows = 16384
cols = 4096
eps = 1e-5


class Model(nn.Module):
    def __init__(self, cols: int) -> None:
        super().__init__()
        self.weight = nn.Parameter((torch.rand(cols) + 0.5).to(torch.float16))
        self.bias = nn.Parameter(torch.randn(cols).to(torch.float16))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(x + residual, self.weight.shape, self.weight, self.bias, eps)


def get_inputs():
    return [
        torch.randn(rows, cols, dtype=torch.float16),
        torch.randn(rows, cols, dtype=torch.float16),
    ]


def get_init_inputs():
    return [cols]


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 1024}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "bfloat16", "sizes": {"rows": 48, "cols": 600}, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "norm", "regime": "memory"}


def cost(element_bytes=2):
    """Two tensors and two vectors read, one tensor written; about nine operations an element."""
    return {"bytes": (3 * rows * cols + 2 * cols) * element_bytes, "flops": 9 * rows * cols}
