"""The sum of three tensors that lie differently in memory: dense, transposed, and every other row.

A kernel that walks all three in the order of one of them reads another with long jumps.
"""

import torch
from torch import nn

batch = 16
height = 1024
width = 1024


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return a + b + c


def get_inputs():
    return [
        torch.randn(batch, height, width),
        torch.randn(batch, width, height).transpose(1, 2),
        torch.randn(batch, 2 * height, width)[:, ::2],
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "height": 128, "width": 128}},
        {"name": "ragged", "sizes": {"batch": 3, "height": 97, "width": 131}},
        {"name": "strided", "sizes": {"batch": 2, "height": 64, "width": 128}, "layout": "strided"},
        {"name": "bfloat16", "sizes": {"batch": 2, "height": 100, "width": 120}, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "elementwise", "regime": "memory"}


def cost(element_bytes=4):
    """Three tensors read, one written; two additions an element."""
    elements = batch * height * width
    return {"bytes": 4 * elements * element_bytes, "flops": 2 * elements}
