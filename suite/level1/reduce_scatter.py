"""A reduce-scatter on one device: each rank's buffer is cut into one chunk for every rank, and a rank keeps
the sum of its own chunk over all buffers. Eight streams are read at once and one is written."""

import torch
from torch import nn

ranks = 8
chunk = 1048576


class Model(nn.Module):
    """The first dimension stands for the group."""

    def forward(self, buffers: torch.Tensor) -> torch.Tensor:
        group = buffers.shape[0]
        return buffers.unflatten(-1, (group, buffers.shape[-1] // group)).sum(dim=0)


def get_inputs():
    return [torch.randn(ranks, ranks * chunk)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"ranks": 8, "chunk": 2048}},
        {"name": "ragged", "sizes": {"ranks": 5, "chunk": 1997}},
        {"name": "strided", "sizes": {"ranks": 4, "chunk": 1024}, "layout": "strided"},
        {"name": "bfloat16", "sizes": {"ranks": 7, "chunk": 1000}, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "communication", "regime": "memory"}


def cost(element_bytes=4):
    """Every buffer read once, a chunk written for each rank."""
    results = ranks * chunk
    return {"bytes": (ranks + 1) * results * element_bytes, "flops": (ranks - 1) * results}
