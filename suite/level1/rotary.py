"""Rotary position embedding, the first half of each head turned against the second; heads lie side by side.

Cosines and sines are inputs of random angles, shared by all heads of a position: they can be kept close.
"""

import torch
from torch import nn

batch = 4
sequence = 4096
heads = 32
half = 64


class Model(nn.Module):
    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        cosine, sine = cosine[:, None, :], sine[:, None, :]
        return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def get_inputs():
    angles = torch.rand(sequence, half) * 6.2831853
    return [
        torch.randn(batch, sequence, heads, 2 * half, dtype=torch.bfloat16),
        torch.cos(angles).to(torch.bfloat16),
        torch.sin(angles).to(torch.bfloat16),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "sequence": 64, "heads": 8, "half": 32}},
        {"name": "ragged", "sizes": {"batch": 3, "sequence": 37, "heads": 5, "half": 29}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "sequence": 32, "heads": 4, "half": 64},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"batch": 1, "sequence": 100, "heads": 3, "half": 40},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "elementwise", "regime": "memory"}


def cost(element_bytes=2):
    """x read and written, the tables read once; two products and a sum for each element."""
    elements = batch * sequence * heads * 2 * half
    return {"bytes": (2 * elements + 2 * sequence * half) * element_bytes, "flops": 3 * elements}
