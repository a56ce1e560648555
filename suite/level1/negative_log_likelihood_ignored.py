"""Minus the log-probability of each pixel's class, zero where the label says to ignore it.

One number in 21 is needed, from a plane the label names: a gather that reads far less than it is given.
"""

import torch
from torch import nn

batch = 16
classes = 21
height = 512
width = 512
ignored = -100


class Model(nn.Module):
    def forward(self, log_probabilities: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.nll_loss(log_probabilities, labels, ignore_index=ignored, reduction="none")


def get_inputs():
    logits = torch.randn(batch, classes, height, width) * 2
    labels = torch.randint(0, classes, (batch, height, width))
    left_out = torch.rand(batch, height, width) < 0.125
    return [torch.log_softmax(logits, dim=1), labels.masked_fill(left_out, ignored)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "classes": 16, "height": 32, "width": 64}},
        {"name": "ragged", "sizes": {"batch": 3, "classes": 19, "height": 37, "width": 41}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "classes": 21, "height": 32, "width": 32},
            "layout": "strided",
        },
        {
            "name": "bfloat16",
            "sizes": {"batch": 2, "classes": 10, "height": 50, "width": 60},
            "dtype": "bfloat16",
        },
    ]


ABOUT = {"category": "loss", "regime": "memory"}


def cost(element_bytes=4):
    """8-byte labels read, a loss written for each pixel, and one number read for the seven in eight kept."""
    pixels = batch * height * width
    return {"bytes": pixels * 8 + (pixels + 7 * pixels // 8) * element_bytes, "flops": pixels}
