"""The divergence of two distributions for each row, given as log-probabilities: one exponential a pair."""

import torch
from torch import nn

rows = 4096
classes = 8192


class Model(nn.Module):
    def forward(self, log_q: torch.Tensor, log_p: torch.Tensor) -> torch.Tensor:
        return nn.functional.kl_div(log_q, log_p, reduction="none", log_target=True).sum(dim=-1)


def get_inputs():
    return [
        torch.log_softmax(torch.randn(rows, classes), dim=-1),
        torch.log_softmax(torch.randn(rows, classes) * 2, dim=-1),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "classes": 512}},
        {"name": "ragged", "sizes": {"rows": 97, "classes": 499}},
        {"name": "strided", "sizes": {"rows": 128, "classes": 256}, "layout": "strided"},
        {"name": "offset", "sizes": {"rows": 100, "classes": 600}, "layout": "offset"},
    ]


ABOUT = {"category": "loss", "regime": "memory"}


def cost(element_bytes=4):
    """Both matrices read, a number written for each row; four operations for each pair."""
    return {"bytes": (2 * rows * classes + rows) * element_bytes, "flops": 4 * rows * classes}
