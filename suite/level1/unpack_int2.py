"""Unpack 2-bit codes, four in a byte with the lowest bits first, into int8 numbers from -2 to 1: integers
only, and each byte read makes four to be written next to each other."""

import torch
from torch import nn

rows = 8192
packed_cols = 8192


class Model(nn.Module):
    def forward(self, packed: torch.Tensor) -> torch.Tensor:
        fields = [(packed >> shift) & 3 for shift in (0, 2, 4, 6)]
        return torch.stack(fields, dim=-1).flatten(-2).to(torch.int8) - 2


def get_inputs():
    return [torch.randint(0, 256, (rows, packed_cols), dtype=torch.uint8)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "packed_cols": 2048}},
        {"name": "ragged", "sizes": {"rows": 37, "packed_cols": 997}},
        {"name": "strided", "sizes": {"rows": 64, "packed_cols": 512}, "layout": "strided"},
        {"name": "transposed", "sizes": {"rows": 67, "packed_cols": 129}, "layout": "transposed"},
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost():
    """Each byte read once, four bytes written for it."""
    return {"bytes": 5 * rows * packed_cols, "flops": 0}
