"""Mean cross entropy with a tenth of each target spread over all classes.

A plain sum of logits joins the row's maximum and its sum of exponentials, and rows join in one number.
"""

import torch
from torch import nn

rows = 4096
classes = 16000
smoothing = 0.1


class Model(nn.Module):
    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits, labels, label_smoothing=smoothing)


def get_inputs():
    return [torch.randn(rows, classes) * 2, torch.randint(0, classes, (rows,))]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "classes": 1024}},
        {"name": "ragged", "sizes": {"rows": 97, "classes": 1009}},
        {"name": "strided", "sizes": {"rows": 64, "classes": 512}, "layout": "strided"},
        {"name": "offset", "sizes": {"rows": 10, "classes": 2000}, "layout": "offset"},
    ]


ABOUT = {"category": "loss", "regime": "memory"}


def cost(element_bytes=4):
    """Logits and 8-byte labels read, one number written; five operations for each logit."""
    return {"bytes": (rows * classes + 1) * element_bytes + rows * 8, "flops": 5 * rows * classes}
