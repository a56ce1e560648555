"""A moving average of all weights of a model, laid end to end in one flat float32 buffer: pure streaming."""

import torch
from torch import nn

elements = 33554432
decay = 0.95


class Model(nn.Module):
    def forward(self, average: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return decay * average + (1 - decay) * value


def get_inputs():
    return [torch.randn(elements), torch.randn(elements)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"elements": 32768}},
        {"name": "ragged", "sizes": {"elements": 40009}},
        {"name": "strided", "sizes": {"elements": 24000}, "layout": "strided"},
        {"name": "float16", "sizes": {"elements": 30000}, "dtype": "float16"},
    ]


ABOUT = {"category": "elementwise", "regime": "memory"}


def cost(element_bytes=4):
    """Two buffers read, one written; two products and a sum for each element."""
    return {"bytes": 3 * elements * element_bytes, "flops": 3 * elements}
