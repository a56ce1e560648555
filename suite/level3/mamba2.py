"""A state-space layer in its dual form: attention without softmax under a mask of decays, in float32.

Written as one square matrix for each head. Chunks with a running state between them need far less memory.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 2
sequence = 2048
heads = 32
head_width = 64
states = 128


class Model(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        # Steps of about 0.02: some fifty positions are remembered.
        self.step_bias = nn.Parameter(torch.randn(heads) * 0.5 - 4.0)

    def forward(
        self, x: torch.Tensor, dt: torch.Tensor, a_log: torch.Tensor, b: torch.Tensor, c: torch.Tensor
    ) -> torch.Tensor:
        step = F.softplus(dt + self.step_bias)
        total = (-torch.exp(a_log) * step).cumsum(1).transpose(1, 2)
        length = x.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        decay = (total.unsqueeze(-1) - total.unsqueeze(-2)).masked_fill(future, float("-inf")).exp()
        mix = (c @ b.transpose(1, 2)).unsqueeze(1) * decay
        return (mix @ (x * step.unsqueeze(-1)).transpose(1, 2)).transpose(1, 2)


def get_inputs():
    return [
        torch.randn(batch, sequence, heads, head_width),
        torch.randn(batch, sequence, heads),
        torch.rand(heads) * 1.5,
        torch.randn(batch, sequence, states),
        torch.randn(batch, sequence, states),
    ]


def get_init_inputs():
    return [heads]


def cases():
    return [
        {
            "name": "aligned",
            "sizes": {"batch": 2, "sequence": 128, "heads": 4, "head_width": 64, "states": 64},
        },
        {
            "name": "ragged",
            "sizes": {"batch": 3, "sequence": 101, "heads": 3, "head_width": 37, "states": 19},
        },
        {
            "name": "strided",
            "sizes": {"batch": 1, "sequence": 96, "heads": 4, "head_width": 32, "states": 16},
            "layout": "strided",
        },
        {
            "name": "one_head",
            "sizes": {"batch": 4, "sequence": 160, "heads": 1, "head_width": 64, "states": 32},
        },
    ]


ABOUT = {"category": "scan", "regime": "compute"}


def cost(element_bytes=4):
    """Inputs read, y written; the recurrence (or the lower triangle, where that is less work)."""
    pairs = sequence * (sequence + 1) // 2
    recurrence = 4 * sequence * heads * head_width * states
    triangle = pairs * (2 * states + 2 * heads * head_width)
    elements = batch * sequence * (2 * heads * head_width + heads + 2 * states) + 2 * heads
    return {"bytes": elements * element_bytes, "flops": batch * min(recurrence, triangle)}
