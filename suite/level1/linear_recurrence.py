"""h[t] = a[t] * h[t-1] + x[t] over 2048 steps for each of 8192 channels, where a is the sigmoid of a gate.

Written as log2(steps) rounds, each of which joins spans twice as long; one pass over the data is enough.
"""

import torch
from torch import nn

batch = 8
sequence = 2048
width = 1024


class Model(nn.Module):
    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        state, decay = x, torch.sigmoid(gate)
        span = 1
        while span < x.shape[1]:
            before = nn.functional.pad(state, (0, 0, span, 0))[:, :-span]
            state = state + decay * before
            decay = decay * nn.functional.pad(decay, (0, 0, span, 0))[:, :-span]
            span *= 2
        return state


def get_inputs():
    return [torch.randn(batch, sequence, width), torch.randn(batch, sequence, width) + 4]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "sequence": 256, "width": 64}},
        {"name": "ragged", "sizes": {"batch": 3, "sequence": 211, "width": 53}},
        {"name": "strided", "sizes": {"batch": 2, "sequence": 128, "width": 64}, "layout": "strided"},
        {"name": "narrow", "sizes": {"batch": 1, "sequence": 1000, "width": 5}},
    ]


ABOUT = {"category": "scan", "regime": "memory"}


def cost(element_bytes=4):
    """x and gate read, states written; a sigmoid, a product and a sum for each element."""
    elements = batch * sequence * width
    return {"bytes": 3 * elements * element_bytes, "flops": 5 * elements}
