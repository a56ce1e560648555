"""Rotary position embedding: the two halves of each head turned against each other by an angle.

Sine and cosine are inputs, not tables a kernel could compute again: the angles are random.
"""

import torch
from torch import nn

batch = 8
heads = 32
sequence = 4096
half = 64


class Model(nn.Module):
    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


def get_inputs():
    angles = torch.rand(sequence, half) * 6.2831853
    return [
        torch.randn(batch, heads, sequence, 2 * half, dtype=torch.bfloat16),
        torch.cos(angles).to(torch.bfloat16),
        torch.sin(angles).to(torch.bfloat16),
    ]


def get_init_inputs():
    return []


def cost(element_bytes=2):
    """x read and written, the tables read once; two products and a sum for each element."""
    elements = batch * heads * sequence * 2 * half
    return {"bytes": (2 * elements + 2 * sequence * half) * element_bytes, "flops": 3 * elements}
