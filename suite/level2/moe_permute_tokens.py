"""Bring tokens into the order of their experts, those of one expert in the order they came: a stable sort of
small integers, then rows moved as a whole. Counting beats comparing here."""

import torch
from torch import nn

tokens = 32768
width = 2048
experts = 64


class Model(nn.Module):
    """Returns the rows in their new order and, for each, where it came from."""

    def forward(self, x: torch.Tensor, expert: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        order = torch.argsort(expert, stable=True)
        return x[order], order


def get_inputs():
    return [
        torch.randn(tokens, width, dtype=torch.bfloat16),
        torch.randint(0, experts, (tokens,), dtype=torch.int32),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"tokens": 512, "width": 256}},
        {"name": "ragged", "sizes": {"tokens": 499, "width": 131, "experts": 7}},
        {"name": "strided", "sizes": {"tokens": 256, "width": 128, "experts": 16}, "layout": "strided"},
        {"name": "float32", "sizes": {"tokens": 300, "width": 200, "experts": 8}, "dtype": "float32"},
    ]


ABOUT = {"category": "sparse", "regime": "memory"}


def cost(element_bytes=2):
    """Rows read and written once, a 4-byte expert read and an 8-byte place written for each token."""
    return {"bytes": 2 * tokens * width * element_bytes + tokens * 12, "flops": 0}
