"""Float32 rows of 2048 sorted, with the place each element came from: a row fits in shared memory."""

import torch
from torch import nn

rows = 8192
cols = 2048


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, places = torch.sort(x, dim=-1)
        return values, places


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 1024}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "transposed", "sizes": {"rows": 200, "cols": 300}, "layout": "transposed"},
    ]


ABOUT = {"category": "index", "regime": "memory"}


def cost(element_bytes=4):
    """x read, values and their 8-byte places written; sorting by digits needs no arithmetic."""
    return {"bytes": rows * cols * (2 * element_bytes + 8), "flops": 0}
