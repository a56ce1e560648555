"""Gemma 2 9B, causal attention with scores bent by 50 tanh(s / 50), grouped heads, in float32.

Fused attention has no place for tanh unless it is written for it; scores are large, so it matters.
"""

import torch
from torch import nn

batch = 2
sequence = 2048
kv_heads = 8
group = 2
head_width = 256
heads = kv_heads * group
cap = 50.0


class Model(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        shared = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
        scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        scores = cap * torch.tanh(scores / cap)
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        return torch.softmax(scores.masked_fill(future, float("-inf")), -1) @ v


def get_inputs():
    return [
        torch.randn(batch, heads, sequence, head_width) * 6.0,
        torch.randn(batch, kv_heads, sequence, head_width),
        torch.randn(batch, kv_heads, sequence, head_width),
    ]


def get_init_inputs():
    return []


def cases():
    small = {"batch": 2, "kv_heads": 2, "group": 2}
    return [
        {"name": "aligned", "sizes": {**small, "sequence": 128, "head_width": 32}},
        {"name": "ragged", "sizes": {**small, "sequence": 101, "group": 3, "head_width": 29}},
        {"name": "strided", "sizes": {**small, "sequence": 64, "head_width": 48}, "layout": "strided"},
        {
            "name": "one_group",
            "sizes": {**small, "kv_heads": 4, "group": 1, "sequence": 72, "head_width": 40},
        },
    ]


ABOUT = {"category": "attention", "regime": "compute"}


def cost(element_bytes=4):
    """q, k and v read, y written; two products over the lower triangle, and tanh and exponential there."""
    pairs = batch * heads * sequence * (sequence + 1) // 2
    elements = 2 * batch * sequence * head_width * (heads + kv_heads)
    return {"bytes": elements * element_bytes, "flops": pairs * (4 * head_width + 6)}
