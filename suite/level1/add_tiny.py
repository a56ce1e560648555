"""The sum of two matrices of 128 by 128: launch latency and nothing else."""

import torch
from torch import nn

rows = 128
cols = 128


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b


def get_inputs():
    return [torch.randn(rows, cols), torch.randn(rows, cols)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 256}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 131}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 128}, "layout": "strided"},
        {"name": "bfloat16", "sizes": {"rows": 96, "cols": 100}, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "elementwise", "regime": "latency"}


def cost(element_bytes=4):
    """Two matrices read, one written; one addition an element."""
    return {"bytes": 3 * rows * cols * element_bytes, "flops": rows * cols}
