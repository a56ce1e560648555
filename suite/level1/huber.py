"""The mean Huber loss of two float32 matrices: squares for small differences, lines for large ones."""

import torch
from torch import nn

rows = 8192
cols = 4096
delta = 0.75


class Model(nn.Module):
    def forward(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.huber_loss(prediction, target, reduction="none", delta=delta).mean()


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
    """Both matrices read, one number written; difference, magnitude, product and sum for each pair."""
    return {"bytes": (2 * rows * cols + 1) * element_bytes, "flops": 4 * rows * cols}
