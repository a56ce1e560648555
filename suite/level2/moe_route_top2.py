"""Route tokens to experts: softmax over the experts, the two largest probabilities, and those two made to sum
to one. A softmax and a selection over short rows, with next to nothing to write."""

import torch
from torch import nn

tokens = 262144
experts = 128


class Model(nn.Module):
    """Returns the two weights and the two experts of each token, the larger first."""

    def forward(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = torch.softmax(logits, dim=-1).topk(2, dim=-1)
        return chosen.values / chosen.values.sum(dim=-1, keepdim=True), chosen.indices


def get_inputs():
    return [torch.randn(tokens, experts) * 2]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"tokens": 1024, "experts": 64}},
        {"name": "ragged", "sizes": {"tokens": 499, "experts": 61}},
        {"name": "strided", "sizes": {"tokens": 256, "experts": 128}, "layout": "strided"},
        {"name": "few_experts", "sizes": {"tokens": 1000, "experts": 8}},
    ]


ABOUT = {"category": "sparse", "regime": "memory"}


def cost(element_bytes=4):
    """Logits read; two weights and two 8-byte indices written for each token."""
    return {
        "bytes": tokens * (experts + 2) * element_bytes + tokens * 16,
        "flops": 4 * tokens * experts,
    }
