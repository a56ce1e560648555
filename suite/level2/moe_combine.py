"""Bring the experts' results back into the order of the tokens: each token is the weighted sum of its few
rows, which lie anywhere in the permuted tensor. Every row is read once, so it is all gathered traffic."""

import torch
from torch import nn

tokens = 32768
choices = 2
width = 2048


class Model(nn.Module):
    def forward(self, results: torch.Tensor, places: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        gathered = results[places].float() * weights.float().unsqueeze(-1)
        return gathered.sum(dim=1).to(results.dtype)


def get_inputs():
    return [
        torch.randn(tokens * choices, width, dtype=torch.bfloat16),
        torch.randperm(tokens * choices).view(tokens, choices),
        torch.rand(tokens, choices, dtype=torch.bfloat16) + 0.1,
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"tokens": 256, "width": 256}},
        {"name": "ragged", "sizes": {"tokens": 131, "choices": 3, "width": 197}},
        {"name": "strided", "sizes": {"tokens": 128, "width": 128}, "layout": "strided"},
        {
            "name": "float32",
            "sizes": {"tokens": 100, "choices": 4, "width": 200},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "sparse", "regime": "memory"}


def cost(element_bytes=2):
    """Each row of the results read once, 8-byte places and weights read, the sums written."""
    rows = tokens * choices
    return {
        "bytes": (rows * width + rows + tokens * width) * element_bytes + rows * 8,
        "flops": 2 * rows * width,
    }
