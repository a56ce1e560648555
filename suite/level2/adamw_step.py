"""One step of AdamW on a flat float32 parameter: four streams in, three out, a dozen operations between."""

import torch
from torch import nn

elements = 16777216
learning_rate = 0.01
momentum = 0.9
smoothing = 0.99
decay = 0.1
eps = 1e-8
step = 10


class Model(nn.Module):
    """Returns the new parameter and the two new moments; nothing is changed in place."""

    def forward(
        self,
        parameter: torch.Tensor,
        gradient: torch.Tensor,
        first: torch.Tensor,
        second: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        first = momentum * first + (1 - momentum) * gradient
        second = smoothing * second + (1 - smoothing) * gradient.square()
        mean = first / (1 - momentum**step)
        size = torch.sqrt(second / (1 - smoothing**step)) + eps
        return parameter * (1 - learning_rate * decay) - learning_rate * mean / size, first, second


def get_inputs():
    return [
        torch.randn(elements) * 0.1,
        torch.randn(elements),
        torch.randn(elements) * 0.5,
        torch.rand(elements) * 0.1 + 0.01,
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"elements": 16384}},
        {"name": "ragged", "sizes": {"elements": 20011}},
        {"name": "strided", "sizes": {"elements": 12000}, "layout": "strided"},
        {"name": "offset", "sizes": {"elements": 16000}, "layout": "offset"},
    ]


ABOUT = {"category": "elementwise", "regime": "memory"}


def cost(element_bytes=4):
    """Four tensors read, three written; about fourteen operations an element."""
    return {"bytes": 7 * elements * element_bytes, "flops": 14 * elements}
