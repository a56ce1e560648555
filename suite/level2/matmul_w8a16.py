"""A few bfloat16 rows times an int8 weight with a scale for each output: the weight is all the traffic, and
it must be widened on the way into the product, never written back."""

import torch
from torch import nn

tokens = 16
width = 28672
depth = 8192


class Model(nn.Module):
    def forward(self, x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, weight.to(x.dtype)) * scale


def get_inputs():
    return [
        torch.randn(tokens, depth, dtype=torch.bfloat16),
        torch.randint(-127, 128, (width, depth), dtype=torch.int8),
        (torch.rand(width, dtype=torch.bfloat16) * 9.9 + 0.1) / 127,
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"tokens": 16, "width": 256, "depth": 512}},
        {"name": "ragged", "sizes": {"tokens": 7, "width": 211, "depth": 331}},
        {"name": "strided", "sizes": {"tokens": 32, "width": 128, "depth": 256}, "layout": "strided"},
        {"name": "float16", "sizes": {"tokens": 16, "width": 200, "depth": 300}, "dtype": "float16"},
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=2):
    """The weight at one byte an element, inputs, scales and result once."""
    floats = tokens * depth + tokens * width + width
    return {"bytes": width * depth + floats * element_bytes, "flops": 2 * tokens * width * depth}
