"""A gated feed-forward block of three matrices in bfloat16: two products share an input."""

import torch
from torch import nn

rows = 8192
width = 2048
hidden = 5632


class Model(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Parameter((torch.randn(hidden, width) / width**0.5).to(torch.bfloat16))
        self.up = nn.Parameter((torch.randn(hidden, width) / width**0.5).to(torch.bfloat16))
        self.down = nn.Parameter((torch.randn(width, hidden) / hidden**0.5).to(torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = nn.functional.silu(nn.functional.linear(x, self.gate))
        return nn.functional.linear(gate * nn.functional.linear(x, self.up), self.down)


def get_inputs():
    return [torch.randn(rows, width, dtype=torch.bfloat16) * 2]


def get_init_inputs():
    return [width, hidden]


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "width": 128, "hidden": 256}},
        {"name": "ragged", "sizes": {"rows": 101, "width": 131, "hidden": 307}},
        {"name": "strided", "sizes": {"rows": 96, "width": 96, "hidden": 224}, "layout": "strided"},
        {"name": "float16", "sizes": {"rows": 64, "width": 160, "hidden": 320}, "dtype": "float16"},
    ]


ABOUT = {"category": "matmul", "regime": "compute"}


def cost(element_bytes=2):
    """x and three weights read, y written; three products, and what lies between may stay on the chip."""
    elements = 2 * rows * width + 3 * width * hidden
    return {"bytes": elements * element_bytes, "flops": 6 * rows * width * hidden}
