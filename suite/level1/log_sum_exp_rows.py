"""The logarithm of the sum of exponentials of each row of 32000 logits: maximum and sum found in one pass."""

import torch
from torch import nn

rows = 4096
cols = 32000


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(x, dim=-1)


def get_inputs():
    return [torch.randn(rows, cols) * 4]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 2048}},
        {"name": "ragged", "sizes": {"rows": 97, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 128, "cols": 512}, "layout": "strided"},
        {"name": "bfloat16", "sizes": {"rows": 100, "cols": 1000}, "dtype": "bfloat16"},
        {"name": "shifted", "sizes": {"rows": 100, "cols": 600}, "distribution": "shifted"},
    ]


ABOUT = {"category": "reduction", "regime": "memory"}


def cost(element_bytes=4):
    """Each logit read once; maximum, difference, exponential and sum for each."""
    return {"bytes": (rows * cols + rows) * element_bytes, "flops": 4 * rows * cols}
