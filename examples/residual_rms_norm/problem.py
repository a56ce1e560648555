"""A residual sum and its RMSNorm, as blocks of language models begin: `make run` searches a kernel for it.

Eager PyTorch reads and writes a row for each of its operators; once in all would do.
"""

import torch
from torch import nn

rows = 512
cols = 1000  # no multiple of 32: a kernel needs a masked tail
eps = 1e-6


class Model(nn.Module):
    """h = x + residual; h / sqrt(mean(h * h) + eps) * gain, and h itself for the next block."""

    def __init__(self, features: int) -> None:
        super().__init__()
        # Not ones: a kernel that forgets the gain must be wrong.
        self.gain = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = x + residual
        scale = torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)
        return h * scale * self.gain, h


def get_inputs():
    return [torch.randn(rows, cols), torch.randn(rows, cols)]


def get_init_inputs():
    return [cols]


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "cols": 2048}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 64}, "layout": "strided"},
        {"name": "float16", "dtype": "float16", "sizes": {"rows": 64}},
        {"name": "one_row", "sizes": {"rows": 1}, "hidden": True},
    ]


ABOUT = {"category": "norm", "regime": "memory"}


def cost(element_bytes=4):
    """x, residual and gain read, both outputs written; sum, square, add, root, two products."""
    return {"bytes": (4 * rows * cols + cols) * element_bytes, "flops": 5 * rows * cols}
