"""A cubic of a clamped argument in float32: multiply-adds that must not cost more than the memory."""

import torch
from torch import nn

rows = 8192
cols = 8192
bound = 2.0


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.clamp(-bound, bound)
        return ((0.375 * y - 0.5) * y + 1.25) * y + 0.75


def get_inputs():
    return [torch.randn(rows, cols) * 1.5]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 1024}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "offset", "sizes": {"rows": 64, "cols": 1000}, "layout": "offset"},
    ]


ABOUT = {"category": "elementwise", "regime": "memory"}


def cost(element_bytes=4):
    """x read, y written; two bounds, three products and three sums for each element."""
    return {"bytes": 2 * rows * cols * element_bytes, "flops": 8 * rows * cols}
