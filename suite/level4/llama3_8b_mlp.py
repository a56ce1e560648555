"""Llama 3 8B, the latter half of a layer on 4096 tokens: norm, gate and up, SiLU, down, residual, bfloat16.

Three large products; the norm's scale, the gate and the sum can ride on them.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 8
sequence = 512
width = 4096
hidden = 14336
eps = 1e-5


def matrix(features_out: int, features_in: int) -> nn.Parameter:
    return nn.Parameter((torch.randn(features_out, features_in) / features_in**0.5).to(torch.bfloat16))


class Model(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gain = nn.Parameter((torch.rand(width) + 0.5).to(torch.bfloat16))
        self.gate, self.up = matrix(hidden, width), matrix(hidden, width)
        self.down = matrix(width, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        y = (wide * scale).to(x.dtype) * self.gain
        return x + F.linear(F.silu(F.linear(y, self.gate)) * F.linear(y, self.up), self.down)


def get_inputs():
    return [torch.randn(batch, sequence, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, hidden]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 4, "sequence": 64, "width": 256, "hidden": 512}},
        {"name": "ragged", "sizes": {"batch": 3, "sequence": 37, "width": 211, "hidden": 397}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "sequence": 48, "width": 128, "hidden": 320},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"batch": 2, "sequence": 32, "width": 192, "hidden": 384},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "matmul", "regime": "compute"}


def cost(element_bytes=2):
    """x and the weights read, y written; three products."""
    tokens = batch * sequence
    weights = 3 * width * hidden
    return {
        "bytes": (2 * tokens * width + weights + width) * element_bytes,
        "flops": 2 * tokens * weights,
    }
