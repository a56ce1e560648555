"""The loss of a language model row by row, over a vocabulary of odd size: rows begin unaligned."""

import torch
from torch import nn

rows = 2048
classes = 50257


class Model(nn.Module):
    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits, labels, reduction="none")


def get_inputs():
    return [torch.randn(rows, classes) * 2, torch.randint(0, classes, (rows,))]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "classes": 1024}},
        {"name": "ragged", "sizes": {"rows": 97, "classes": 1009}},
        {"name": "strided", "sizes": {"rows": 64, "classes": 512}, "layout": "strided"},
        {"name": "bfloat16", "sizes": {"rows": 100, "classes": 1000}, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "loss", "regime": "memory"}


def cost(element_bytes=4):
    """Logits and 8-byte labels read, a loss written for each row; four operations for each logit."""
    return {"bytes": (rows * classes + rows) * element_bytes + rows * 8, "flops": 4 * rows * classes}
