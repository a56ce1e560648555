"""Running maxima along float32 rows that drift upwards: a scan that rounds nothing, exact or wrong."""

import torch
from torch import nn

rows = 8192
cols = 8192


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cummax(x, dim=-1).values


def get_inputs():
    return [torch.randn(rows, cols) + torch.linspace(0, 8, cols)]


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
    """x read, maxima written; one comparison an element."""
    return {"bytes": 2 * rows * cols * element_bytes, "flops": rows * cols}
