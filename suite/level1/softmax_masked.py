"""Softmax over those elements of each row that a boolean mask keeps; the others become zero.

At least one of a row is kept. Scores and one-byte mask are streams of different width.
"""

import torch
from torch import nn

rows = 8192
cols = 8192


class Model(nn.Module):
    def forward(self, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)


def get_inputs():
    mask = torch.rand(rows, cols) < 0.5
    mask = mask.scatter(1, torch.randint(0, cols, (rows, 1)), True)
    return [torch.randn(rows, cols) * 2, mask]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 1024}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "bfloat16", "sizes": {"rows": 64, "cols": 1000}, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "softmax", "regime": "memory"}


def cost(element_bytes=4):
    """Scores and one-byte mask read, y written; five operations for each element kept, one in two."""
    elements = rows * cols
    return {"bytes": 2 * elements * element_bytes + elements, "flops": 5 * elements // 2}
