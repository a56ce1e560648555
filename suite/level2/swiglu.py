"""The gate of a feed-forward layer, silu(gate) * up, in bfloat16: two large tensors in, one out."""

import torch
from torch import nn

rows = 8192
cols = 11008


class Model(nn.Module):
    def forward(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(gate) * up


def get_inputs():
    return [
        torch.randn(rows, cols, dtype=torch.bfloat16) * 2,
        torch.randn(rows, cols, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "cols": 512}},
        {"name": "ragged", "sizes": {"rows": 61, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 96, "cols": 480}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 64, "cols": 600}, "dtype": "float32"},
    ]


ABOUT = {"category": "elementwise", "regime": "memory"}


def cost(element_bytes=2):
    """Two tensors read, one written; exponential, sum, quotient and product for each element."""
    return {"bytes": 3 * rows * cols * element_bytes, "flops": 4 * rows * cols}
