"""Rotary position embedding of neighbouring pairs in float16: even and odd elements turned by an angle.

Both elements of a pair come with one load, where a kernel for the other form would read with a stride.
"""

import torch
from torch import nn

batch = 4
heads = 32
sequence = 4096
half = 64


class Model(nn.Module):
    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = torch.stack((even * cosine - odd * sine, odd * cosine + even * sine), dim=-1)
        return turned.flatten(-2)


def get_inputs():
    angles = torch.rand(sequence, half) * 6.2831853
    return [
        torch.randn(batch, heads, sequence, 2 * half, dtype=torch.float16),
        torch.cos(angles).to(torch.float16),
        torch.sin(angles).to(torch.float16),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "heads": 8, "sequence": 64, "half": 32}},
        {"name": "ragged", "sizes": {"batch": 3, "heads": 5, "sequence": 37, "half": 29}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "heads": 4, "sequence": 32, "half": 64},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"batch": 1, "heads": 3, "sequence": 100, "half": 40},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "elementwise", "regime": "memory"}


def cost(element_bytes=2):
    """x read and written, the tables read once; two products and a sum for each element."""
    elements = batch * heads * sequence * 2 * half
    return {"bytes": (2 * elements + 2 * sequence * half) * element_bytes, "flops": 3 * elements}
