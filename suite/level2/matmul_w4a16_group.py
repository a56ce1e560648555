"""A few bfloat16 rows times a 4-bit weight with a scale for every 128 inputs: half a byte for each weight is
read, unpacked and scaled on the way into the product."""

import torch
from torch import nn

tokens = 16
width = 28672
groups = 64
group = 128


class Model(nn.Module):
    """Two codes in a byte, the low half first; a code is the number plus eight."""

    def forward(self, x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        codes = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)
        numbers = (codes.to(torch.int8) - 8).unflatten(-1, (scale.shape[-1], group))
        weight = (numbers.to(x.dtype) * scale.unsqueeze(-1)).flatten(-2)
        return nn.functional.linear(x, weight)


def get_inputs():
    return [
        torch.randn(tokens, groups * group, dtype=torch.bfloat16),
        torch.randint(0, 256, (width, groups * group // 2), dtype=torch.uint8),
        (torch.rand(width, groups, dtype=torch.bfloat16) * 9.9 + 0.1) / 64,
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"tokens": 16, "width": 256, "groups": 4}},
        {"name": "ragged", "sizes": {"tokens": 7, "width": 211, "groups": 3}},
        {"name": "strided", "sizes": {"tokens": 32, "width": 128, "groups": 2}, "layout": "strided"},
        {"name": "float16", "sizes": {"tokens": 16, "width": 200, "groups": 5}, "dtype": "float16"},
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=2):
    """The weight at half a byte an element, its scales, inputs and result once."""
    depth = groups * group
    floats = tokens * depth + tokens * width + width * groups
    return {
        "bytes": width * depth // 2 + floats * element_bytes,
        "flops": 2 * tokens * width * depth,
    }
