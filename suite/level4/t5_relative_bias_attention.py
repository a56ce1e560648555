"""T5 large, encoder attention in bfloat16: no scale, and a learned bias for each bucket of distance and head.

Buckets grow with distance; a kernel looks the bias up while it makes the scores instead of reading a square.
"""

import torch
from torch import nn

batch = 8
heads = 16
sequence = 1024
head_width = 64
# The least distance of each bucket but the first: exact to eight, then factors of the square root of two.
bounds = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91)


class Model(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(2 * (len(bounds) + 1), heads).to(torch.bfloat16))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        position = torch.arange(q.shape[2], device=q.device)
        distance = position - position.unsqueeze(-1)
        least = torch.tensor(bounds, device=q.device)
        bucket = (distance.abs().unsqueeze(-1) >= least).sum(-1) + (distance > 0) * (len(bounds) + 1)
        scores = q @ k.transpose(-1, -2) + self.bias[bucket].permute(2, 0, 1)
        return torch.softmax(scores.float(), -1).to(q.dtype) @ v


def get_inputs():
    return [
        torch.randn(batch, heads, sequence, head_width, dtype=torch.bfloat16) / head_width**0.5,
        torch.randn(batch, heads, sequence, head_width, dtype=torch.bfloat16),
        torch.randn(batch, heads, sequence, head_width, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return [heads]


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


ABOUT = {"category": "attention", "regime": "compute"}


def cost(element_bytes=2):
    """q, k, v and the table read, y written; two products over all pairs."""
    elements = 4 * batch * heads * sequence * head_width + 2 * (len(bounds) + 1) * heads
    return {
        "bytes": elements * element_bytes,
        "flops": 4 * batch * heads * sequence * sequence * head_width,
    }
