"""Causal attention whose scores are bent by cap * tanh(score / cap) before the softmax, in bfloat16."""

import torch
from torch import nn

batch = 4
heads = 16
sequence = 2048
width = 128
cap = 8.0


class Model(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        position = torch.arange(q.shape[2], device=q.device)
        scores = (q @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
        scores = cap * torch.tanh(scores / cap)
        scores = scores.masked_fill(position.unsqueeze(1) < position.unsqueeze(0), float("-inf"))
        return torch.softmax(scores, dim=-1).to(v.dtype) @ v


def get_inputs():
    # Queries large enough that many scores come near the cap.
    return [
        torch.randn(batch, heads, sequence, width, dtype=torch.bfloat16) * 6,
        torch.randn(batch, heads, sequence, width, dtype=torch.bfloat16),
        torch.randn(batch, heads, sequence, width, dtype=torch.bfloat16),
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
        {"name": "float16", "sizes": aligned, "dtype": "float16"},
    ]


ABOUT = {"category": "attention", "regime": "compute"}


def cost(element_bytes=2):
    """Three tensors read, one written; two products over the pairs on and below the diagonal."""
    elements = batch * heads * sequence * width
    pairs = sequence * (sequence + 1) // 2
    return {"bytes": 4 * elements * element_bytes, "flops": 4 * batch * heads * pairs * width}
