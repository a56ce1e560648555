"""Two linear layers with ReLU between, in float16: the hidden layer is four times as wide."""

import torch
from torch import nn

rows = 8192
width = 2048
hidden = 8192


class Model(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Parameter((torch.randn(hidden, width) / width**0.5).to(torch.float16))
        self.up_bias = nn.Parameter(torch.randn(hidden).to(torch.float16))
        self.down = nn.Parameter((torch.randn(width, hidden) / hidden**0.5).to(torch.float16))
        self.down_bias = nn.Parameter(torch.randn(width).to(torch.float16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = torch.relu(nn.functional.linear(x, self.up, self.up_bias))
        return nn.functional.linear(inside, self.down, self.down_bias)


def get_inputs():
    return [torch.randn(rows, width, dtype=torch.float16)]


def get_init_inputs():
    return [width, hidden]


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "width": 128, "hidden": 512}},
        {"name": "ragged", "sizes": {"rows": 101, "width": 131, "hidden": 307}},
        {"name": "strided", "sizes": {"rows": 96, "width": 96, "hidden": 256}, "layout": "strided"},
        {"name": "bfloat16", "sizes": {"rows": 64, "width": 160, "hidden": 384}, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "matmul", "regime": "compute"}


def cost(element_bytes=2):
    """x, weights and biases read, y written; two products, and what lies between may stay on the chip."""
    elements = 2 * rows * width + 2 * width * hidden + width + hidden
    return {"bytes": elements * element_bytes, "flops": 4 * rows * width * hidden}
