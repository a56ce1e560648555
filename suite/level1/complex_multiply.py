"""Products of complex numbers, real and imaginary parts in separate tensors: four streams in, two out."""

import torch
from torch import nn

rows = 4096
cols = 4096


class Model(nn.Module):
    def forward(
        self, a_real: torch.Tensor, a_imag: torch.Tensor, b_real: torch.Tensor, b_imag: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return a_real * b_real - a_imag * b_imag, a_real * b_imag + a_imag * b_real


def get_inputs():
    return [
        torch.randn(rows, cols),
        torch.randn(rows, cols),
        torch.randn(rows, cols),
        torch.randn(rows, cols),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 512}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 499}},
        {"name": "strided", "sizes": {"rows": 32, "cols": 256}, "layout": "strided"},
        {"name": "bfloat16", "sizes": {"rows": 50, "cols": 300}, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "elementwise", "regime": "memory"}


def cost(element_bytes=4):
    """Four tensors read, two written; four products and two sums for each pair."""
    return {"bytes": 6 * rows * cols * element_bytes, "flops": 6 * rows * cols}
