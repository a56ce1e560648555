"""Running sums along float32 rows of 16384: each block's part must wait for the parts before it."""

import torch
from torch import nn

rows = 4096
cols = 16384


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, dim=-1)


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 32, "cols": 4096}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "bfloat16", "sizes": {"rows": 64, "cols": 1000}, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "scan", "regime": "memory"}


def cost(element_bytes=4):
    """x read, sums written; one addition an element."""
    return {"bytes": 2 * rows * cols * element_bytes, "flops": rows * cols}
