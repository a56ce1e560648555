"""GELU by its tanh formula on 128 million bfloat16 elements: the arithmetic hides under memory traffic."""

import torch
from torch import nn

rows = 16384
cols = 8192


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(x, approximate="tanh")


def get_inputs():
    return [torch.randn(rows, cols, dtype=torch.bfloat16) * 2]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 1024}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 48, "cols": 1000}, "dtype": "float32"},
    ]


ABOUT = {"category": "elementwise", "regime": "memory"}


def cost(element_bytes=2):
    """x read, y written; a cubic, a hyperbolic tangent and two products for each element."""
    return {"bytes": 2 * rows * cols * element_bytes, "flops": 8 * rows * cols}
