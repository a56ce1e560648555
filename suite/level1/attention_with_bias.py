"""Attention with a bias for each head and pair of positions, shared by the batch: more tiles to load."""

import torch
from torch import nn

batch = 4
heads = 16
sequence = 2048
width = 64


class Model(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def get_inputs():
    return [
        torch.randn(batch, heads, sequence, width, dtype=torch.bfloat16),
        torch.randn(batch, heads, sequence, width, dtype=torch.bfloat16),
        torch.randn(batch, heads, sequence, width, dtype=torch.bfloat16),
        torch.randn(heads, sequence, sequence, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "heads": 2, "sequence": 128, "width": 64}},
        {"name": "ragged", "sizes": {"batch": 3, "heads": 3, "sequence": 101, "width": 40}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "heads": 2, "sequence": 96, "width": 32},
            "layout": "strided",
        },
        {
            "name": "float16",
            "sizes": {"batch": 2, "heads": 2, "sequence": 112, "width": 64},
            "dtype": "float16",
        },
    ]


ABOUT = {"category": "attention", "regime": "compute"}


def cost(element_bytes=2):
    """Three tensors and the bias read, one written; two products over all pairs of positions."""
    elements = batch * heads * sequence * width
    read = 3 * elements + heads * sequence * sequence
    return {"bytes": (read + elements) * element_bytes, "flops": 4 * elements * sequence}
