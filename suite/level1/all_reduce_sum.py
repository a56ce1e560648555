"""An all-reduce on one device: each rank's buffer is replaced by the sum over all ranks. One sum for each
element, but the result is written once for every rank."""

import torch
from torch import nn

ranks = 8
elements = 16777216


class Model(nn.Module):
    """The first dimension stands for the group."""

    def forward(self, buffers: torch.Tensor) -> torch.Tensor:
        return buffers.sum(dim=0).repeat(buffers.shape[0], 1)


def get_inputs():
    return [torch.randn(ranks, elements, dtype=torch.bfloat16)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"ranks": 8, "elements": 16384}},
        {"name": "ragged", "sizes": {"ranks": 5, "elements": 9973}},
        {"name": "strided", "sizes": {"ranks": 4, "elements": 4096}, "layout": "strided"},
        {"name": "float32", "sizes": {"ranks": 3, "elements": 10000}, "dtype": "float32"},
    ]


ABOUT = {"category": "communication", "regime": "memory"}


def cost(element_bytes=2):
    """Every buffer read once and written once."""
    return {"bytes": 2 * ranks * elements * element_bytes, "flops": (ranks - 1) * elements}
