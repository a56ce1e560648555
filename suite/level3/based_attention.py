"""Causal linear attention whose weights are the exponential's Taylor series to second order, in bfloat16.

Written as 1 + s + s^2/2 of narrow scores s; the same sums can be carried along as a state over features.
"""

import torch
from torch import nn

batch = 4
heads = 16
sequence = 2048
feature = 16
head_width = 64


class Model(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        weights = (1 + scores + 0.5 * scores.square()).tril()
        return (weights @ v) / weights.sum(-1, keepdim=True)


def get_inputs():
    return [
        torch.randn(batch, heads, sequence, feature, dtype=torch.bfloat16),
        torch.randn(batch, heads, sequence, feature, dtype=torch.bfloat16),
        torch.randn(batch, heads, sequence, head_width, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "heads": 4, "sequence": 128, "feature": 16}},
        {
            "name": "ragged",
            "sizes": {"batch": 3, "heads": 2, "sequence": 101, "feature": 13, "head_width": 37},
        },
        {"name": "strided", "sizes": {"batch": 2, "heads": 2, "sequence": 96}, "layout": "strided"},
        {"name": "float32", "sizes": {"batch": 1, "heads": 4, "sequence": 128}, "dtype": "float32"},
    ]


ABOUT = {"category": "attention", "regime": "memory"}


def cost(element_bytes=2):
    """q, k and v read, y written; a state over distinct features, or the lower triangle if less."""
    rows = batch * heads
    pairs = sequence * (sequence + 1) // 2
    features = 1 + feature + feature * (feature + 1) // 2
    state = 4 * sequence * features * head_width
    triangle = pairs * (2 * feature + 4 + 2 * head_width)
    elements = 2 * rows * sequence * (feature + head_width)
    return {"bytes": elements * element_bytes, "flops": rows * min(state, triangle)}
