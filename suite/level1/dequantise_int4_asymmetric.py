"""Unpack 4-bit codes and undo a scale and a zero point for each group of 64, where the zero points are packed
two in a byte as well: two unpackings at different rates meet in one element."""

import torch
from torch import nn

rows = 8192
group_pairs = 64
group = 64


class Model(nn.Module):
    """(code - zero) * scale; in both packed tensors the low half of a byte comes first."""

    def forward(self, packed: torch.Tensor, zeros: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        codes = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2).to(torch.int8)
        zero = torch.stack((zeros & 15, zeros >> 4), dim=-1).flatten(-2).to(torch.int8)
        numbers = codes.unflatten(-1, (scale.shape[-1], group)) - zero.unsqueeze(-1)
        return (numbers.to(scale.dtype) * scale.unsqueeze(-1)).flatten(-2)


def get_inputs():
    return [
        torch.randint(0, 256, (rows, group_pairs * group), dtype=torch.uint8),
        torch.randint(0, 256, (rows, group_pairs), dtype=torch.uint8),
        torch.rand(rows, 2 * group_pairs, dtype=torch.bfloat16) * 9.9 + 0.1,
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "group_pairs": 16}},
        {"name": "ragged", "sizes": {"rows": 37, "group_pairs": 7}},
        {"name": "strided", "sizes": {"rows": 64, "group_pairs": 8}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 64, "group_pairs": 5}, "dtype": "float32"},
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=2):
    """Packed codes, packed zero points and scales read, one number written for each code."""
    packed = rows * group_pairs * group
    floats = 2 * packed + 2 * rows * group_pairs
    return {
        "bytes": packed + rows * group_pairs + floats * element_bytes,
        "flops": 4 * packed,
    }
