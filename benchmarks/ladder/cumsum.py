"""Running sums along rows: a scan, which no compiler fuses well."""

import torch
from torch import nn

rows = 4096
cols = 16384


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, -1)


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []


def cost(element_bytes=4):
    """Read once, write once, one addition an element."""
    return {"bytes": 2 * rows * cols * element_bytes, "flops": rows * cols}
