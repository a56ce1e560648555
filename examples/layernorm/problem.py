"""LayerNorm over the last dimension: a small, complete example of Assay's own problem format.

`Model` is the specification and the baseline, `get_inputs` draws one call's arguments. The rest is optional:
`cases` adds sizes and dtypes, `PRECISION` is the contract on rounding, `cost` the least work one call needs.
"""

import torch
from torch import nn

rows = 256
cols = 1000  # no multiple of 32: a kernel needs a masked tail
eps = 1e-5


class Model(nn.Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias, row by row."""

    def __init__(self, features: int) -> None:
        super().__init__()
        # Not ones and zeros: a kernel that forgets the affine part must be wrong.
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(x, self.weight.shape, self.weight, self.bias, eps)


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return [cols]


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "cols": 2048}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 64}, "layout": "strided"},
        {"name": "float16", "dtype": "float16"},
        {"name": "bfloat16", "dtype": "bfloat16", "distribution": "row_scaled"},
        {"name": "one_row", "sizes": {"rows": 1}, "hidden": True},
    ]


PRECISION = {"allow_tf32": False}


def cost(element_bytes=4):
    """Read x once, write y once, read weight and bias; about eight operations an element."""
    return {"bytes": (2 * rows * cols + 2 * cols) * element_bytes, "flops": 8 * rows * cols}
