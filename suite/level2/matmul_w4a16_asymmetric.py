"""Many bfloat16 rows times a 4-bit weight with a scale and a zero point for every 64 inputs: bound by the
tensor cores, which must not wait for the unpacking."""

import torch
from torch import nn

tokens = 8192
width = 4096
groups = 64
group = 64


class Model(nn.Module):
    """Weights are (code - zero) * scale; two codes in a byte, the low half first."""

    def forward(
        self, x: torch.Tensor, packed: torch.Tensor, zero: torch.Tensor, scale: torch.Tensor
    ) -> torch.Tensor:
        codes = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2).to(torch.int8)
        numbers = codes.unflatten(-1, (scale.shape[-1], group)) - zero.to(torch.int8).unsqueeze(-1)
        weight = (numbers.to(x.dtype) * scale.unsqueeze(-1)).flatten(-2)
        return nn.functional.linear(x, weight)


def get_inputs():
    return [
        torch.randn(tokens, groups * group, dtype=torch.bfloat16),
        torch.randint(0, 256, (width, groups * group // 2), dtype=torch.uint8),
        torch.randint(0, 16, (width, groups), dtype=torch.uint8),
        (torch.rand(width, groups, dtype=torch.bfloat16) * 9.9 + 0.1) / 64,
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"tokens": 128, "width": 128, "groups": 4}},
        {"name": "ragged", "sizes": {"tokens": 67, "width": 131, "groups": 3}},
        {"name": "strided", "sizes": {"tokens": 64, "width": 128, "groups": 2}, "layout": "strided"},
        {"name": "float16", "sizes": {"tokens": 64, "width": 100, "groups": 5}, "dtype": "float16"},
    ]


ABOUT = {"category": "quantisation", "regime": "compute"}


def cost(element_bytes=2):
    """Half a byte for each weight, a zero point and a scale for each group, inputs and result once."""
    depth = groups * group
    floats = tokens * depth + tokens * width + width * groups
    return {
        "bytes": width * depth // 2 + width * groups + floats * element_bytes,
        "flops": 2 * tokens * width * depth,
    }
