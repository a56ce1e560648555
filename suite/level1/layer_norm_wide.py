"""LayerNorm of 128 float32 rows of 65536: rows are longer than a block holds and fewer than the blocks.

Several blocks must share a row and exchange their sums, or most of the device stays idle.
"""

import torch
from torch import nn

rows = 128
cols = 65536
eps = 1e-5


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(features) + 0.5)
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(x, self.gain.shape, self.gain, self.bias, eps)


def get_inputs():
    return [torch.randn(rows, cols) * (torch.rand(rows, 1) + 0.5) + torch.randn(rows, 1)]


def get_init_inputs():
    return [cols]


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 4, "cols": 32768}},
        {"name": "ragged", "sizes": {"rows": 3, "cols": 32771}},
        {"name": "strided", "sizes": {"rows": 5, "cols": 16384}, "layout": "strided"},
        {"name": "bfloat16", "sizes": {"rows": 4, "cols": 50000}, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "norm", "regime": "memory"}


def cost(element_bytes=4):
    """x, gain and bias read, y written; two reductions and an affine map."""
    return {"bytes": (2 * rows * cols + 2 * cols) * element_bytes, "flops": 7 * rows * cols}
