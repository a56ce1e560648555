"""The lower triangle of a matrix times another matrix: a kernel that skips empty tiles does half the work."""

import torch
from torch import nn

size = 8192
cols = 4096


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.tril(a) @ b


def get_inputs():
    return [
        torch.randn(size, size, dtype=torch.bfloat16),
        torch.randn(size, cols, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"size": 256, "cols": 128}},
        {"name": "ragged", "sizes": {"size": 211, "cols": 83}},
        {"name": "strided", "sizes": {"size": 160, "cols": 96}, "layout": "strided"},
        {"name": "float16", "sizes": {"size": 192, "cols": 160}, "dtype": "float16"},
    ]


ABOUT = {"category": "matmul", "regime": "compute"}


def cost(element_bytes=2):
    """One triangle and the right operand read, the product written; only terms of the triangle count."""
    triangle = size * (size + 1) // 2
    return {"bytes": (triangle + 2 * size * cols) * element_bytes, "flops": 2 * triangle * cols}
