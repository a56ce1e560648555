"""Unpack 4-bit codes, two in a byte, and scale them by groups of 128 to float16: each byte read makes four
bytes to be written, so wide stores of interleaved halves matter."""

import torch
from torch import nn

rows = 8192
groups = 128
group = 128


class Model(nn.Module):
    """The low half of a byte is the even element; a code is the number plus eight."""

    def forward(self, packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        codes = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)
        numbers = (codes.to(torch.int8) - 8).unflatten(-1, (scale.shape[-1], group))
        return (numbers.to(scale.dtype) * scale.unsqueeze(-1)).flatten(-2)


def get_inputs():
    return [
        torch.randint(0, 256, (rows, groups * group // 2), dtype=torch.uint8),
        torch.rand(rows, groups, dtype=torch.float16) * 9.9 + 0.1,
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "groups": 16}},
        {"name": "ragged", "sizes": {"rows": 37, "groups": 7}},
        {"name": "strided", "sizes": {"rows": 64, "groups": 8}, "layout": "strided"},
        {"name": "bfloat16", "sizes": {"rows": 64, "groups": 5}, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=2):
    """Half a byte read and one number written for each element; the scales read once."""
    elements = rows * groups * group
    return {
        "bytes": elements // 2 + (elements + rows * groups) * element_bytes,
        "flops": 2 * elements,
    }
