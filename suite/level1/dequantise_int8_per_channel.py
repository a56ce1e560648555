"""Turn an int8 weight back into float32 with a scale for each column: every thread needs other scales than
the one beside it, and the output is four times the input."""

import torch
from torch import nn

rows = 8192
cols = 8192


class Model(nn.Module):
    def forward(self, codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return codes.to(scale.dtype) * scale


def get_inputs():
    return [
        torch.randint(-127, 128, (rows, cols), dtype=torch.int8),
        torch.rand(cols) * 9.9 + 0.1,
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 256, "cols": 512}},
        {"name": "ragged", "sizes": {"rows": 149, "cols": 331}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "float16", "sizes": {"rows": 64, "cols": 1000}, "dtype": "float16"},
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=4):
    """One byte read and one number written for each element; the scales read once."""
    return {"bytes": rows * cols * (1 + element_bytes) + cols * element_bytes, "flops": rows * cols}
