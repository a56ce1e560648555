"""Layer norm feeding a linear layer, in float16: the norm can ride on the loads of the product."""

import torch
from torch import nn

rows = 8192
features_in = 2048
features_out = 6144
eps = 1e-5


class Model(nn.Module):
    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        self.gain = nn.Parameter((torch.rand(features_in) + 0.5).to(torch.float16))
        self.offset = nn.Parameter(torch.randn(features_in).to(torch.float16))
        weight = torch.randn(features_out, features_in) / features_in**0.5
        self.weight = nn.Parameter(weight.to(torch.float16))
        self.bias = nn.Parameter(torch.randn(features_out).to(torch.float16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = nn.functional.layer_norm(x, self.gain.shape, self.gain, self.offset, eps)
        return nn.functional.linear(normed, self.weight, self.bias)


def get_inputs():
    # Rows of different size and centre: a kernel that leaves the norm out must be wrong.
    return [
        torch.randn(rows, features_in, dtype=torch.float16) * 3 + torch.randn(rows, 1, dtype=torch.float16)
    ]


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
            "name": "float32",
            "sizes": {"rows": 64, "features_in": 192, "features_out": 256},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "matmul", "regime": "compute"}


def cost(element_bytes=2):
    """x, weight and three vectors read, y written; the product and about eight operations an element of x."""
    elements = rows * (features_in + features_out) + (features_in + 1) * features_out + 2 * features_in
    flops = 2 * rows * features_in * features_out + 8 * rows * features_in
    return {"bytes": elements * element_bytes, "flops": flops}
