"""The loss of a language model, row by row: one gigabyte of logits read, eight thousand numbers written.

No mean over the rows: a mean of so many is nearly the same number for every input.
"""

import torch
from torch import nn

rows = 8192
classes = 32000


class Model(nn.Module):
    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits, labels, reduction="none")


def get_inputs():
    return [torch.randn(rows, classes) * 2.0, torch.randint(0, classes, (rows,))]


def get_init_inputs():
    return []


def cost(element_bytes=4):
    """Logits and 8-byte labels read once; maximum, difference, exponential and sum for each logit."""
    return {
        "bytes": (rows * classes + rows) * element_bytes + rows * 8,
        "flops": 4 * rows * classes,
    }
