"""Sums over segments of neighbouring rows, whose lengths are random: equal segment numbers lie side by side.

Atomic additions are the easy way; since the numbers are sorted, most of them can be saved.
"""

import torch
from torch import nn

segments = 32768
mean_length = 16
width = 64


class Model(nn.Module):
    def __init__(self, segments: int) -> None:
        super().__init__()
        self.segments = segments

    def forward(self, values: torch.Tensor, segment_of: torch.Tensor) -> torch.Tensor:
        sums = values.new_zeros(self.segments, values.shape[1])
        return sums.index_add(0, segment_of, values)


def get_inputs():
    rows = segments * mean_length
    segment_of = torch.sort(torch.randint(0, segments, (rows,))).values
    return [torch.randn(rows, width), segment_of]


def get_init_inputs():
    return [segments]


def cases():
    return [
        {"name": "aligned", "sizes": {"segments": 128, "mean_length": 8, "width": 64}},
        {"name": "ragged", "sizes": {"segments": 101, "mean_length": 13, "width": 47}},
        {
            "name": "strided",
            "sizes": {"segments": 64, "mean_length": 16, "width": 32},
            "layout": "strided",
        },
        {"name": "long", "sizes": {"segments": 5, "mean_length": 500, "width": 20}},
    ]


ABOUT = {"category": "scan", "regime": "memory"}


def cost(element_bytes=4):
    """Rows and their 8-byte segment numbers read, sums written; one addition an element."""
    rows = segments * mean_length
    return {"bytes": (rows + segments) * width * element_bytes + rows * 8, "flops": rows * width}
