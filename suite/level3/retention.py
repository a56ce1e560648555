"""Linear attention under a mask that decays with distance, each head at its own learned rate, in bfloat16.

No softmax and no normaliser, so a state of one matrix for each head can replace the square of scores.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 4
heads = 16
sequence = 2048
head_width = 64


class Model(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        # Decays between 0.88 and 0.99 a step.
        self.rate = nn.Parameter((torch.rand(heads) * 3.0 + 2.0).to(torch.bfloat16))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        position = torch.arange(q.shape[2], device=q.device)
        distance = (position.unsqueeze(-1) - position).clamp(min=0)
        mask = (distance * F.logsigmoid(self.rate.float()).reshape(-1, 1, 1)).exp().tril()
        scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        return (scores * mask.to(q.dtype)) @ v


def get_inputs():
    return [
        torch.randn(batch, heads, sequence, head_width, dtype=torch.bfloat16),
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


ABOUT = {"category": "attention", "regime": "memory"}


def cost(element_bytes=2):
    """q, k, v and the rates read, y written; a running state, or the lower triangle where that is less."""
    rows = batch * heads
    pairs = sequence * (sequence + 1) // 2
    work = min(4 * sequence * head_width * head_width, 4 * pairs * head_width)
    elements = 4 * rows * sequence * head_width + heads
    return {"bytes": elements * element_bytes, "flops": rows * work}
