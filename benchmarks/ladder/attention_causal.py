"""Causal attention in bfloat16: each position looks at itself and what came before."""

import torch
from torch import nn

batch = 4
heads = 16
sequence = 2048
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


def cost(element_bytes=2):
    """Three tensors read, one written; two products over the lower triangle only."""
    pairs = sequence * (sequence + 1) // 2
    elements = batch * heads * sequence * width
    return {"bytes": 4 * elements * element_bytes, "flops": 4 * batch * heads * pairs * width}
