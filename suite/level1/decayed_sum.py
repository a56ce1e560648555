"""A moving average over time, y[t] = 0.95 * y[t-1] + 0.05 * x[t], written as a triangular product.

The matrix of weights makes it quadratic in time; the recurrence behind it needs three operations an element.
"""

import torch
from torch import nn

batch = 32
sequence = 512
width = 2048
decay = 0.95


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = torch.arange(x.shape[1], device=x.device)
        distance = steps[:, None] - steps[None, :]
        weights = torch.where(distance >= 0, (1 - decay) * decay ** distance.clamp(min=0), 0.0)
        return weights.to(x.dtype) @ x


def get_inputs():
    return [torch.randn(batch, sequence, width)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "sequence": 128, "width": 256}},
        {"name": "ragged", "sizes": {"batch": 3, "sequence": 151, "width": 97}},
        {"name": "strided", "sizes": {"batch": 2, "sequence": 64, "width": 128}, "layout": "strided"},
        {"name": "long", "sizes": {"batch": 1, "sequence": 500, "width": 100}},
    ]


ABOUT = {"category": "scan", "regime": "memory"}
PRECISION = {"allow_tf32": False}


def cost(element_bytes=4):
    """x read, averages written; two products and a sum for each element."""
    elements = batch * sequence * width
    return {"bytes": 2 * elements * element_bytes, "flops": 3 * elements}
