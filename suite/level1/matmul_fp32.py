"""A square product in true float32: TF32 is ruled out, so the work falls to the ordinary multipliers."""

import torch
from torch import nn

rows = 4096
inner = 4096
cols = 4096


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs():
    return [torch.randn(rows, inner), torch.randn(inner, cols)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "inner": 256, "cols": 128}},
        {"name": "ragged", "sizes": {"rows": 67, "inner": 211, "cols": 131}},
        {"name": "strided", "sizes": {"rows": 96, "inner": 160, "cols": 80}, "layout": "strided"},
        {"name": "float16", "sizes": {"rows": 128, "inner": 128, "cols": 96}, "dtype": "float16"},
    ]


ABOUT = {"category": "matmul", "regime": "compute"}

PRECISION = {"allow_tf32": False}


def cost(element_bytes=4):
    """Both operands read, the product written; one multiplication and one addition a term."""
    elements = rows * inner + inner * cols + rows * cols
    return {"bytes": elements * element_bytes, "flops": 2 * rows * inner * cols}
