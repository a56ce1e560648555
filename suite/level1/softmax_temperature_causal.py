"""Softmax of scores over a temperature, later positions left out: the mask follows from the places.

Scores above the diagonal need not be read, but their zeros must be written.
"""

import torch
from torch import nn

heads = 32
sequence = 2048
temperature = 0.7


class Model(nn.Module):
    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(scores.shape[-1], device=scores.device)
        later = positions[None, :] > positions[:, None]
        return torch.softmax((scores / temperature).masked_fill(later, float("-inf")), dim=-1)


def get_inputs():
    return [torch.randn(heads, sequence, sequence, dtype=torch.bfloat16) * 2]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"heads": 4, "sequence": 256}},
        {"name": "ragged", "sizes": {"heads": 3, "sequence": 211}},
        {"name": "strided", "sizes": {"heads": 4, "sequence": 128}, "layout": "strided"},
        {"name": "float32", "sizes": {"heads": 2, "sequence": 200}, "dtype": "float32"},
    ]


ABOUT = {"category": "softmax", "regime": "memory"}


def cost(element_bytes=2):
    """The lower triangle read, all of the result written; five operations for each score of the triangle."""
    pairs = sequence * (sequence + 1) // 2
    return {"bytes": heads * (pairs + sequence * sequence) * element_bytes, "flops": 5 * heads * pairs}
