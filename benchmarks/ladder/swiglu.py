"""The gate of a SwiGLU feed-forward layer: silu(gate) * up."""

import torch
from torch import nn

rows = 8192
cols = 14336


class Model(nn.Module):
    def forward(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(gate) * up


def get_inputs():
    return [
        torch.randn(rows, cols, dtype=torch.bfloat16),
        torch.randn(rows, cols, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return []


def cost(element_bytes=2):
    """Two tensors read, one written; exponential, sum, quotient and product for each element."""
    return {"bytes": 3 * rows * cols * element_bytes, "flops": 4 * rows * cols}
