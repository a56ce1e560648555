"""Causal attention in bfloat16: tiles above the diagonal are no work, those on it need a mask."""

import torch
from torch import nn

batch = 2
heads = 8
sequence = 4096
width = 128


class Model(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [
        torch.randn(batch, heads, sequence, width, dtype=torch.bfloat16),
        torch.randn(batch, heads, sequence, width, dtype=torch.bfloat16),
        torch.randn(batch, heads, sequence, width, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "heads": 2, "sequence": 128, "width": 64}},
        {"name": "ragged", "sizes": {"batch": 1, "heads": 3, "sequence": 113, "width": 56}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "heads": 2, "sequence": 96, "width": 32},
            "layout": "strided",
        },
        {
            "name": "float16",
            "sizes": {"batch": 1, "heads": 4, "sequence": 144, "width": 64},
            "dtype": "float16",
        },
    ]


ABOUT = {"category": "attention", "regime": "compute"}


def cost(element_bytes=2):
    """Three tensors read, one written; two products over the pairs on and below the diagonal."""
    elements = batch * heads * sequence * width
    pairs = sequence * (sequence + 1) // 2
    return {"bytes": 4 * elements * element_bytes, "flops": 4 * batch * heads * pairs * width}
