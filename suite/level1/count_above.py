"""How many elements of each row exceed the row's own threshold: integers, so exact or wrong."""

import torch
from torch import nn

rows = 8192
cols = 8192


class Model(nn.Module):
    def forward(self, x: torch.Tensor, threshold: torch.Tensor) -> torch.Tensor:
        return (x > threshold[:, None]).sum(dim=-1)


def get_inputs():
    return [torch.randn(rows, cols), torch.randn(rows)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "cols": 512}},
        {"name": "ragged", "sizes": {"rows": 131, "cols": 499}},
        {"name": "strided", "sizes": {"rows": 128, "cols": 256}, "layout": "strided"},
        {"name": "offset", "sizes": {"rows": 100, "cols": 600}, "layout": "offset"},
    ]


ABOUT = {"category": "reduction", "regime": "memory"}


def cost(element_bytes=4):
    """Elements and thresholds read once, an 8-byte count written for each row; one comparison an element."""
    return {"bytes": (rows * cols + rows) * element_bytes + rows * 8, "flops": rows * cols}
