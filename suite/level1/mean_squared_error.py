"""The mean of squared differences of two float32 matrices with rows of different size: one number."""

import torch
from torch import nn

rows = 4096
cols = 8192


class Model(nn.Module):
    def forward(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (prediction - target).square().mean()


def get_inputs():
    scales = torch.exp(torch.randn(rows, 1))
    return [torch.randn(rows, cols) * scales, torch.randn(rows, cols) * scales]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 512}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 499}},
        {"name": "strided", "sizes": {"rows": 32, "cols": 64}, "layout": "strided"},
        {"name": "small", "sizes": {"rows": 10, "cols": 50}},
    ]


ABOUT = {"category": "loss", "regime": "memory"}


def cost(element_bytes=4):
    """Both matrices read, one number written; difference, square and sum for each pair."""
    return {"bytes": (2 * rows * cols + 1) * element_bytes, "flops": 3 * rows * cols}
