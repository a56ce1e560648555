"""Causal attention with a penalty that grows with distance at a rate of its own for each head.

The penalty is computed from two indices where it is needed; writing it out costs more than the attention.
"""

import torch
from torch import nn

batch = 4
heads = 16
sequence = 2048
width = 128


class Model(nn.Module):
    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slopes: torch.Tensor
    ) -> torch.Tensor:
        position = torch.arange(q.shape[2], device=q.device)
        back = position.unsqueeze(1) - position.unsqueeze(0)
        scores = (q @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
        scores = scores - slopes.float().reshape(-1, 1, 1) * back
        scores = scores.masked_fill(back < 0, float("-inf"))
        return torch.softmax(scores, dim=-1).to(v.dtype) @ v


def get_inputs():
    return [
        torch.randn(batch, heads, sequence, width, dtype=torch.float16),
        torch.randn(batch, heads, sequence, width, dtype=torch.float16),
        torch.randn(batch, heads, sequence, width, dtype=torch.float16),
        torch.rand(heads).to(torch.float16) * 0.2 + 0.01,
    ]


def get_init_inputs():
    return []


def cases():
    aligned = {"batch": 2, "heads": 4, "sequence": 128, "width": 32}
    ragged = {"batch": 1, "heads": 3, "sequence": 113, "width": 40}
    strided = {"batch": 2, "heads": 2, "sequence": 96, "width": 32}
    return [
        {"name": "aligned", "sizes": aligned},
        {"name": "ragged", "sizes": ragged},
        {"name": "strided", "sizes": strided, "layout": "strided"},
        {"name": "bfloat16", "sizes": aligned, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "attention", "regime": "compute"}


def cost(element_bytes=2):
    """Three tensors and the slopes read, one tensor written; two products on and below the diagonal."""
    elements = batch * heads * sequence * width
    pairs = sequence * (sequence + 1) // 2
    return {"bytes": (4 * elements + heads) * element_bytes, "flops": 4 * batch * heads * pairs * width}
