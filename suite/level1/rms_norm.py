"""Rows divided by their root mean square and multiplied by a gain, in bfloat16 with sums kept in float32."""

import torch
from torch import nn

rows = 16384
cols = 5120
eps = 1e-6


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(features, dtype=torch.bfloat16) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x, self.gain.shape, self.gain, eps)


def get_inputs():
    return [torch.randn(rows, cols, dtype=torch.bfloat16) * 2]


def get_init_inputs():
    return [cols]


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 2048}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "float16", "sizes": {"rows": 64, "cols": 1000}, "dtype": "float16"},
        {"name": "row_scaled", "sizes": {"rows": 64, "cols": 768}, "distribution": "row_scaled"},
    ]


ABOUT = {"category": "norm", "regime": "memory"}


def cost(element_bytes=2):
    """x and gain read, y written; one reduction and two products for each element."""
    return {"bytes": (2 * rows * cols + cols) * element_bytes, "flops": 4 * rows * cols}
