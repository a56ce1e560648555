"""One step of a ring: each rank adds what its left neighbour holds to its own buffer, the first taking from
the last. Every buffer is needed twice, and a kernel that walks along the ranks reads it once."""

import torch
from torch import nn

ranks = 8
elements = 8388608


class Model(nn.Module):
    """The first dimension stands for the group."""

    def forward(self, buffers: torch.Tensor) -> torch.Tensor:
        return buffers + buffers.roll(1, dims=0)


def get_inputs():
    return [torch.randn(ranks, elements)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"ranks": 8, "elements": 8192}},
        {"name": "ragged", "sizes": {"ranks": 5, "elements": 9973}},
        {"name": "strided", "sizes": {"ranks": 4, "elements": 4096}, "layout": "strided"},
        {"name": "bfloat16", "sizes": {"ranks": 3, "elements": 10000}, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "communication", "regime": "memory"}


def cost(element_bytes=4):
    """Every buffer read once and written once."""
    return {"bytes": 2 * ranks * elements * element_bytes, "flops": ranks * elements}
