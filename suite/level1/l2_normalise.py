"""Bfloat16 embeddings divided by their Euclidean length: a row fits in the registers of one warp."""

import torch
from torch import nn

rows = 131072
cols = 768
eps = 1e-6


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.normalize(x, dim=-1, eps=eps)


def get_inputs():
    return [torch.randn(rows, cols, dtype=torch.bfloat16) * 2]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "cols": 1024}},
        {"name": "ragged", "sizes": {"rows": 131, "cols": 331}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 100, "cols": 500}, "dtype": "float32"},
    ]


ABOUT = {"category": "norm", "regime": "memory"}


def cost(element_bytes=2):
    """x read, y written; square, sum and product for each element."""
    return {"bytes": 2 * rows * cols * element_bytes, "flops": 3 * rows * cols}
