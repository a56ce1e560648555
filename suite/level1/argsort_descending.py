"""The places of float32 elements from the largest to the least of each row of 1024: no values returned."""

import torch
from torch import nn

rows = 16384
cols = 1024


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.argsort(x, dim=-1, descending=True)


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "cols": 512}},
        {"name": "ragged", "sizes": {"rows": 97, "cols": 499}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "offset", "sizes": {"rows": 200, "cols": 300}, "layout": "offset"},
    ]


ABOUT = {"category": "index", "regime": "memory"}


def cost(element_bytes=4):
    """x read, 8-byte places written; sorting by digits needs no arithmetic."""
    return {"bytes": rows * cols * (element_bytes + 8), "flops": 0}
