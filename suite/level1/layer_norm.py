"""LayerNorm of bfloat16 rows of 4096 with gain and bias: a row fits on chip, so it need be read only once."""

import torch
from torch import nn

rows = 16384
cols = 4096
eps = 1e-5


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(features, dtype=torch.bfloat16) + 0.5)
        self.bias = nn.Parameter(torch.randn(features, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(x, self.gain.shape, self.gain, self.bias, eps)


def get_inputs():
    return [torch.randn(rows, cols, dtype=torch.bfloat16) * 2 + 0.5]


def get_init_inputs():
    return [cols]


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 2048}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 64, "cols": 1000}, "dtype": "float32"},
        {"name": "row_scaled", "sizes": {"rows": 64, "cols": 768}, "distribution": "row_scaled"},
    ]


ABOUT = {"category": "norm", "regime": "memory"}


def cost(element_bytes=2):
    """x, gain and bias read, y written; two reductions and an affine map."""
    return {"bytes": (2 * rows * cols + 2 * cols) * element_bytes, "flops": 7 * rows * cols}
