"""LayerNorm over the last three dimensions: rows of four million elements, too many for one block."""

import torch
from torch import nn

batch = 16
features = 64
height = 256
width = 256


class Model(nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.ln(x)


def get_inputs():
    return [torch.randn(batch, features, height, width)]


def get_init_inputs():
    return [(features, height, width)]


def cost(element_bytes=4):
    """Read x, weight and bias once, write y once; two passes of two operations, then four an element."""
    row = features * height * width
    return {"bytes": (2 * batch + 2) * row * element_bytes, "flops": 8 * batch * row}
