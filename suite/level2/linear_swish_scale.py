"""A linear layer, x times sigmoid(x), and a constant factor, in float16: one epilogue saves three passes."""

import torch
from torch import nn

rows = 8192
features_in = 4096
features_out = 4096
factor = 1.75


class Model(nn.Module):
    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        weight = torch.randn(features_out, features_in) / features_in**0.5
        self.weight = nn.Parameter(weight.to(torch.float16))
        self.bias = nn.Parameter(torch.randn(features_out).to(torch.float16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.linear(x, self.weight, self.bias)
        return y * torch.sigmoid(y) * factor


def get_inputs():
    return [torch.randn(rows, features_in, dtype=torch.float16)]


def get_init_inputs():
    return [features_in, features_out]


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "features_in": 256, "features_out": 512}},
        {"name": "ragged", "sizes": {"rows": 101, "features_in": 211, "features_out": 307}},
        {
            "name": "strided",
            "sizes": {"rows": 96, "features_in": 160, "features_out": 192},
            "layout": "strided",
        },
        {
            "name": "bfloat16",
            "sizes": {"rows": 64, "features_in": 192, "features_out": 256},
            "dtype": "bfloat16",
        },
    ]


ABOUT = {"category": "matmul", "regime": "compute"}


def cost(element_bytes=2):
    """x, weight and bias read, y written; the product, then about five operations an element."""
    elements = rows * (features_in + features_out) + (features_in + 1) * features_out
    flops = 2 * rows * features_in * features_out + 5 * rows * features_out
    return {"bytes": elements * element_bytes, "flops": flops}
