"""Quantise a float32 weight to int8 with a scale for each column: the maximum runs across the direction in
which memory is contiguous, so columns have to be reduced many at a time."""

import torch
from torch import nn

rows = 8192
cols = 4096
limit = 127


class Model(nn.Module):
    """Returns the codes and a float32 scale for each column."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        wide = x.float()
        scale = wide.abs().amax(dim=0).clamp(min=1e-12) / limit
        codes = torch.round(wide / scale).clamp(-limit, limit)
        return codes.to(torch.int8), scale


def get_inputs():
    return [torch.randn(rows, cols) * (torch.rand(cols) * 9.9 + 0.1)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 512, "cols": 256}},
        {"name": "ragged", "sizes": {"rows": 331, "cols": 149}},
        {"name": "strided", "sizes": {"rows": 256, "cols": 128}, "layout": "strided"},
        {"name": "mixture", "sizes": {"rows": 200, "cols": 300}, "distribution": "mixture"},
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=4):
    """x read, one byte written for each element and a 4-byte scale for each column."""
    return {"bytes": rows * cols * (element_bytes + 1) + cols * 4, "flops": 3 * rows * cols}
