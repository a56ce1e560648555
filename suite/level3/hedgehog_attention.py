"""Causal linear attention on learned positive features softmax([Wx, -Wx]), a map for each head, in bfloat16.

Maps, products and normaliser are one kernel's work; the square of weights need never be stored.
"""

import torch
from torch import nn

batch = 4
heads = 16
sequence = 2048
head_width = 64


class Model(nn.Module):
    def __init__(self, heads: int, head_width: int) -> None:
        super().__init__()
        shape = (heads, head_width, head_width)
        self.q_map = nn.Parameter((2 * torch.randn(shape) / head_width**0.5).to(torch.bfloat16))
        self.k_map = nn.Parameter((2 * torch.randn(shape) / head_width**0.5).to(torch.bfloat16))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k = q @ self.q_map, k @ self.k_map
        q = torch.softmax(torch.cat((q, -q), -1), -1)
        k = torch.softmax(torch.cat((k, -k), -1), -1)
        weights = (q @ k.transpose(-1, -2)).tril()
        return (weights @ v) / weights.sum(-1, keepdim=True)


def get_inputs():
    return [
        torch.randn(batch, heads, sequence, head_width, dtype=torch.bfloat16),
        torch.randn(batch, heads, sequence, head_width, dtype=torch.bfloat16),
        torch.randn(batch, heads, sequence, head_width, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return [heads, head_width]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "heads": 4, "sequence": 128, "head_width": 64}},
        {"name": "ragged", "sizes": {"batch": 3, "heads": 3, "sequence": 101, "head_width": 37}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "heads": 2, "sequence": 96, "head_width": 32},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"batch": 1, "heads": 4, "sequence": 128, "head_width": 64},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "attention", "regime": "memory"}


def cost(element_bytes=2):
    """q, k, v and the maps read, y written; the maps' products, and a state or the lower triangle."""
    rows = batch * heads
    pairs = sequence * (sequence + 1) // 2
    maps = 4 * sequence * head_width * head_width
    state = 4 * sequence * 2 * head_width * head_width
    triangle = pairs * (4 * head_width + 2 * head_width)
    elements = 4 * rows * sequence * head_width + 2 * heads * head_width * head_width
    return {"bytes": elements * element_bytes, "flops": rows * (maps + min(state, triangle))}
