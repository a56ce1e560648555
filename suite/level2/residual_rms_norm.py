"""A residual added, then RMS norm, in bfloat16: the sum is needed twice, normalised and as it is."""

import torch
from torch import nn

rows = 16384
cols = 4096
eps = 1e-5


class Model(nn.Module):
    def __init__(self, cols: int) -> None:
        super().__init__()
        self.weight = nn.Parameter((torch.rand(cols) + 0.5).to(torch.bfloat16))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + residual
        wide = total.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        return (wide * scale * self.weight.float()).to(x.dtype), total


def get_inputs():
    return [
        torch.randn(rows, cols, dtype=torch.bfloat16),
        torch.randn(rows, cols, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return [cols]


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 1024}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 48, "cols": 600}, "dtype": "float32"},
    ]


ABOUT = {"category": "norm", "regime": "memory"}


def cost(element_bytes=2):
    """Two tensors and the weight read, two tensors written; five operations an element."""
    return {"bytes": (4 * rows * cols + cols) * element_bytes, "flops": 5 * rows * cols}
