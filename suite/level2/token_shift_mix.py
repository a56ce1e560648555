"""Each token mixed with the one before it in three ways, channel by channel: one tensor in, three out."""

import torch
from torch import nn

batch = 8
sequence = 4096
width = 2048


class Model(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.rand(3, width).to(torch.bfloat16))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        # The first token of each sequence has zeros before it.
        difference = nn.functional.pad(x, (0, 0, 1, 0))[:, :-1] - x
        return x + difference * self.mix[0], x + difference * self.mix[1], x + difference * self.mix[2]


def get_inputs():
    return [torch.randn(batch, sequence, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 4, "sequence": 64, "width": 256}},
        {"name": "ragged", "sizes": {"batch": 3, "sequence": 53, "width": 331}},
        {"name": "strided", "sizes": {"batch": 2, "sequence": 64, "width": 320}, "layout": "strided"},
        {"name": "float32", "sizes": {"batch": 2, "sequence": 48, "width": 384}, "dtype": "float32"},
    ]


ABOUT = {"category": "elementwise", "regime": "memory"}


def cost(element_bytes=2):
    """x and three vectors read, three tensors written; one difference, then two operations a result."""
    elements = batch * sequence * width
    return {"bytes": (4 * elements + 3 * width) * element_bytes, "flops": 7 * elements}
