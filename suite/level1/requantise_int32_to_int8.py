"""Bring int32 sums of an integer product back to int8: add an integer bias and multiply by a float32 factor
for each column, then round and clip. Only the factor's precision decides which way a sum is rounded."""

import torch
from torch import nn

rows = 8192
cols = 4096


class Model(nn.Module):
    def forward(self, sums: torch.Tensor, bias: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        scaled = (sums + bias).to(factor.dtype) * factor
        return torch.round(scaled).clamp(-128, 127).to(torch.int8)


def get_inputs():
    return [
        torch.randint(-100000, 100001, (rows, cols), dtype=torch.int32),
        torch.randint(-30000, 30001, (cols,), dtype=torch.int32),
        (torch.rand(cols) + 0.1) * 0.0015,
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 1024}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "transposed", "sizes": {"rows": 67, "cols": 129}, "layout": "transposed"},
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=4):
    """Four bytes read and one written for each sum; bias and factors read once."""
    return {"bytes": 5 * rows * cols + cols * (4 + element_bytes), "flops": 2 * rows * cols}
