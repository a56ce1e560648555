"""Count the tokens of each expert, turn the counts into offsets, and give every token its row in the order of
experts. Integers only: a histogram, a scan and a stable ranking that must agree with each other."""

import torch
from torch import nn

tokens = 4194304
experts = 256


class Model(nn.Module):
    """Returns counts, offsets (the counts of all experts before) and each token's row."""

    def __init__(self, experts: int) -> None:
        super().__init__()
        self.experts = experts

    def forward(self, expert: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        counts = expert.new_zeros(self.experts).scatter_add(0, expert, torch.ones_like(expert))
        offsets = counts.cumsum(0) - counts
        order = torch.argsort(expert, stable=True)
        rows = torch.empty_like(order).scatter(0, order, torch.arange(len(order), device=order.device))
        return counts, offsets, rows


def get_inputs():
    return [torch.randint(0, experts, (tokens,))]


def get_init_inputs():
    return [experts]


def cases():
    return [
        {"name": "aligned", "sizes": {"tokens": 65536, "experts": 64}},
        {"name": "ragged", "sizes": {"tokens": 9973, "experts": 37}},
        {"name": "strided", "sizes": {"tokens": 4096}, "layout": "strided"},
        {"name": "few_experts", "sizes": {"tokens": 10000, "experts": 8}},
    ]


ABOUT = {"category": "sparse", "regime": "memory"}


def cost():
    """An 8-byte expert read and an 8-byte row written for each token; counts and offsets written."""
    return {"bytes": 16 * tokens + 16 * experts, "flops": 0}
