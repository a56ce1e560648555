"""log(1 + exp(x)) in float32: the plain formula overflows on large arguments and rounds small ones away."""

import torch
from torch import nn

rows = 8192
cols = 8192


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.softplus(x)


def get_inputs():
    return [torch.randn(rows, cols) * 4]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 1024}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "bfloat16", "sizes": {"rows": 64, "cols": 1000}, "dtype": "bfloat16"},
        {"name": "row_scaled", "sizes": {"rows": 64, "cols": 500}, "distribution": "row_scaled"},
    ]


ABOUT = {"category": "elementwise", "regime": "memory"}


def cost(element_bytes=4):
    """x read, y written; exponential, sum and logarithm for each element."""
    return {"bytes": 2 * rows * cols * element_bytes, "flops": 3 * rows * cols}
