"""Focal loss of binary logits summed over the 80 classes of each anchor: sure answers count for little."""

import torch
from torch import nn

anchors = 262144
classes = 80
alpha = 0.25
gamma = 2.0


class Model(nn.Module):
    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        entropy = nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        chance = torch.sigmoid(logits)
        missed = chance * (1 - targets) + (1 - chance) * targets
        weight = alpha * targets + (1 - alpha) * (1 - targets)
        return (weight * missed**gamma * entropy).sum(dim=-1)


def get_inputs():
    return [
        torch.randn(anchors, classes) * 2 - 1,
        (torch.rand(anchors, classes) < 0.125).float(),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"anchors": 512, "classes": 64}},
        {"name": "ragged", "sizes": {"anchors": 499, "classes": 83}},
        {"name": "strided", "sizes": {"anchors": 256, "classes": 80}, "layout": "strided"},
        {"name": "bfloat16", "sizes": {"anchors": 500, "classes": 60}, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "loss", "regime": "memory"}


def cost(element_bytes=4):
    """Logits and targets read, a sum written for each anchor; about twelve operations for each logit."""
    return {"bytes": (2 * anchors * classes + anchors) * element_bytes, "flops": 12 * anchors * classes}
