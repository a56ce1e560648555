"""A product through ReLU, each row times a number of its own, summed over rows: only one row is ever written.

The ReLU keeps the sum from moving in front of the product; partial sums of many tiles must be joined.
"""

import torch
from torch import nn

rows = 8192
inner = 4096
cols = 4096


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        product = torch.relu(a @ b).float()
        return (product * scale.float().unsqueeze(-1)).sum(0).to(a.dtype)


def get_inputs():
    return [
        torch.randn(rows, inner, dtype=torch.bfloat16),
        torch.randn(inner, cols, dtype=torch.bfloat16),
        torch.randn(rows, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "inner": 128, "cols": 512}},
        {"name": "ragged", "sizes": {"rows": 101, "inner": 113, "cols": 509}},
        {"name": "strided", "sizes": {"rows": 96, "inner": 80, "cols": 448}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 80, "inner": 96, "cols": 384}, "dtype": "float32"},
    ]


ABOUT = {"category": "matmul", "regime": "compute"}


def cost(element_bytes=2):
    """Two matrices and the factors read, one row written; the product, three operations a result."""
    elements = rows * inner + inner * cols + rows + cols
    flops = 2 * rows * inner * cols + 3 * rows * cols
    return {"bytes": elements * element_bytes, "flops": flops}
