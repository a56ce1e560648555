"""How often each of 1024 bins occurs among 32 million numbers, the first bins far oftener than the last.

Atomic additions to one table would queue at the crowded bins; each block needs a table of its own.
"""

import torch
from torch import nn

elements = 33554432
bins = 1024


class Model(nn.Module):
    def __init__(self, bins: int) -> None:
        super().__init__()
        self.bins = bins

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        counts = torch.zeros(self.bins, dtype=torch.int64, device=values.device)
        return counts.scatter_add(0, values, torch.ones_like(values))


def get_inputs():
    return [(torch.rand(elements).square() * bins).long().clamp(max=bins - 1)]


def get_init_inputs():
    return [bins]


def cases():
    return [
        {"name": "aligned", "sizes": {"elements": 65536, "bins": 256}},
        {"name": "ragged", "sizes": {"elements": 50021, "bins": 199}},
        {"name": "strided", "sizes": {"elements": 32768}, "layout": "strided"},
        {"name": "few_bins", "sizes": {"elements": 40000, "bins": 10}},
    ]


ABOUT = {"category": "index", "regime": "memory"}


def cost(element_bytes=4):
    """8-byte numbers read, 8-byte counts written; no floating-point work, so element_bytes plays no part."""
    return {"bytes": (elements + bins) * 8, "flops": 0}
