"""Batch norm with stored statistics, a residual, ReLU: the end of a residual block in one pass."""

import torch
from torch import nn

batch = 64
channels = 256
height = 56
width = 56
eps = 1e-5


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter((torch.rand(channels) + 0.5).to(torch.bfloat16))
        self.bias = nn.Parameter(torch.randn(channels).to(torch.bfloat16))
        self.register_buffer("mean", torch.randn(channels).to(torch.bfloat16))
        self.register_buffer("variance", (torch.rand(channels) + 0.5).to(torch.bfloat16))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        y = nn.functional.batch_norm(x, self.mean, self.variance, self.weight, self.bias, eps=eps)
        return torch.relu(y + residual)


def get_inputs():
    return [
        torch.randn(batch, channels, height, width, dtype=torch.bfloat16),
        torch.randn(batch, channels, height, width, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return [channels]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 4, "channels": 32, "height": 16, "width": 16}},
        {"name": "ragged", "sizes": {"batch": 3, "channels": 29, "height": 13, "width": 19}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "channels": 24, "height": 12, "width": 20},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"batch": 2, "channels": 20, "height": 14, "width": 24},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "norm", "regime": "memory"}


def cost(element_bytes=2):
    """Two maps and four vectors read, one map written; scale, shift, add and clamp for each element."""
    elements = batch * channels * height * width
    return {"bytes": (3 * elements + 4 * channels) * element_bytes, "flops": 4 * elements}
