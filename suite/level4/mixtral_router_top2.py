"""Mixtral's router: logits of eight experts in float32 from bfloat16 tokens, the best two, their weights.

A product so narrow that it is a reading of x, followed by a softmax and a choice within each row.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 16
sequence = 2048
width = 4096
experts = 8
chosen = 2


class Model(nn.Module):
    """Returns float32 weights that add up to one, and the experts' numbers, best first."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.gate = nn.Parameter((torch.randn(experts, width) / width**0.5).to(torch.bfloat16))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = F.linear(x.float(), self.gate.float())
        weights, numbers = torch.softmax(logits, -1).topk(chosen, -1)
        return weights / weights.sum(-1, keepdim=True), numbers


def get_inputs():
    return [torch.randn(batch, sequence, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, experts]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 4, "sequence": 256, "width": 256}},
        {"name": "ragged", "sizes": {"batch": 3, "sequence": 197, "width": 311, "experts": 11}},
        {"name": "strided", "sizes": {"batch": 2, "sequence": 256, "width": 128}, "layout": "strided"},
        {"name": "float32", "sizes": {"batch": 2, "sequence": 160, "width": 192}, "dtype": "float32"},
    ]


ABOUT = {"category": "matmul", "regime": "memory"}


def cost(element_bytes=2):
    """x and the gate read, 4-byte weights and 8-byte numbers written; one narrow product."""
    tokens = batch * sequence
    return {
        "bytes": (tokens + experts) * width * element_bytes + 12 * tokens * chosen,
        "flops": 2 * tokens * width * experts,
    }
