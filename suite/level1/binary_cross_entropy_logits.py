"""The mean binary cross entropy of logits against soft targets, with a weight on the positives of each class.

The logarithm of a sigmoid must neither overflow nor round to zero, for logits of either sign.
"""

import torch
from torch import nn

rows = 8192
classes = 4096


class Model(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.positive_weight = nn.Parameter(torch.rand(classes) + 0.5)

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        losses = nn.functional.binary_cross_entropy_with_logits(
            logits, targets, reduction="none", pos_weight=self.positive_weight
        )
        return losses.mean()


def get_inputs():
    return [torch.randn(rows, classes) * torch.exp(torch.randn(rows, 1)), torch.rand(rows, classes)]


def get_init_inputs():
    return [classes]


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "classes": 512}},
        {"name": "ragged", "sizes": {"rows": 37, "classes": 499}},
        {"name": "strided", "sizes": {"rows": 32, "classes": 64}, "layout": "strided"},
        {"name": "small", "sizes": {"rows": 10, "classes": 50}},
    ]


ABOUT = {"category": "loss", "regime": "memory"}


def cost(element_bytes=4):
    """Logits, targets and weights read, one number written; about eight operations for each logit."""
    return {
        "bytes": (2 * rows * classes + classes + 1) * element_bytes,
        "flops": 8 * rows * classes,
    }
