"""The exact GELU on 64 million bfloat16 elements: pure memory traffic."""

import torch
from torch import nn

rows = 16384
cols = 4096


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(x)


def get_inputs():
    return [torch.randn(rows, cols, dtype=torch.bfloat16)]


def get_init_inputs():
    return []


def cost(element_bytes=2):
    """Read once, write once; the error function counts as one operation."""
    return {"bytes": 2 * rows * cols * element_bytes, "flops": 5 * rows * cols}
