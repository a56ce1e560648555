"""A large square product in float16: long enough that only a full pipeline into the tensor cores is fast."""

import torch
from torch import nn

rows = 8192
inner = 8192
cols = 8192


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs():
    return [
        torch.randn(rows, inner, dtype=torch.float16),
        torch.randn(inner, cols, dtype=torch.float16),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 256, "inner": 512, "cols": 128}},
        {"name": "ragged", "sizes": {"rows": 129, "inner": 331, "cols": 67}},
        {"name": "strided", "sizes": {"rows": 128, "inner": 192, "cols": 96}, "layout": "strided"},
        {"name": "bfloat16", "sizes": {"rows": 128, "inner": 256, "cols": 160}, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "matmul", "regime": "compute"}


def cost(element_bytes=2):
    """Both operands read, the product written; one multiplication and one addition a term."""
    elements = rows * inner + inner * cols + rows * cols
    return {"bytes": elements * element_bytes, "flops": 2 * rows * inner * cols}
