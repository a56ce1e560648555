"""Running products of factors near one along short float32 rows: a scan one warp does in its registers."""

import torch
from torch import nn

rows = 262144
cols = 128


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumprod(x, dim=-1)


def get_inputs():
    return [1 + 0.1 * torch.randn(rows, cols)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 1024, "cols": 128}},
        {"name": "ragged", "sizes": {"rows": 997, "cols": 101}},
        {"name": "strided", "sizes": {"rows": 512, "cols": 128}, "layout": "strided"},
        {"name": "transposed", "sizes": {"rows": 600, "cols": 100}, "layout": "transposed"},
    ]


ABOUT = {"category": "scan", "regime": "memory"}


def cost(element_bytes=4):
    """x read, products written; one product an element."""
    return {"bytes": 2 * rows * cols * element_bytes, "flops": rows * cols}
