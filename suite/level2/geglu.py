"""One projection to twice the hidden width, half of it gating the other through GELU, in float16."""

import torch
from torch import nn

rows = 8192
width = 2048
hidden = 4096


class Model(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        weight = torch.randn(2 * hidden, width) / width**0.5
        self.weight = nn.Parameter(weight.to(torch.float16))
        self.bias = nn.Parameter(torch.randn(2 * hidden).to(torch.float16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value, gate = nn.functional.linear(x, self.weight, self.bias).chunk(2, dim=-1)
        return value * nn.functional.gelu(gate)


def get_inputs():
    return [torch.randn(rows, width, dtype=torch.float16)]


def get_init_inputs():
    return [width, hidden]


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "width": 128, "hidden": 256}},
        {"name": "ragged", "sizes": {"rows": 101, "width": 131, "hidden": 307}},
        {"name": "strided", "sizes": {"rows": 96, "width": 96, "hidden": 224}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 64, "width": 160, "hidden": 192}, "dtype": "float32"},
    ]


ABOUT = {"category": "matmul", "regime": "compute"}


def cost(element_bytes=2):
    """x, weight and bias read, y written; the product, then about seven operations an element."""
    elements = rows * (width + hidden) + 2 * hidden * (width + 1)
    flops = 4 * rows * width * hidden + 7 * rows * hidden
    return {"bytes": elements * element_bytes, "flops": flops}
