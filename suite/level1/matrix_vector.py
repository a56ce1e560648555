"""A matrix times one vector in float16: each element is used once, so reading the matrix is the cost."""

import torch
from torch import nn

rows = 16384
cols = 8192


class Model(nn.Module):
    def forward(self, matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
        return torch.mv(matrix, vector)


def get_inputs():
    return [torch.randn(rows, cols, dtype=torch.float16), torch.randn(cols, dtype=torch.float16)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 256, "cols": 512}},
        {"name": "ragged", "sizes": {"rows": 199, "cols": 1009}},
        {"name": "strided", "sizes": {"rows": 192, "cols": 320}, "layout": "strided"},
        {"name": "transposed", "sizes": {"rows": 160, "cols": 384}, "layout": "transposed"},
        {"name": "float32", "sizes": {"rows": 128, "cols": 640}, "dtype": "float32"},
    ]


ABOUT = {"category": "matmul", "regime": "memory"}


def cost(element_bytes=2):
    """Matrix and vector read, one number a row written; one multiplication and one addition a term."""
    return {"bytes": (rows * cols + cols + rows) * element_bytes, "flops": 2 * rows * cols}
