"""Group norm over 32 groups of channels, then SiLU: a statistic over a stretch of memory read twice."""

import torch
from torch import nn

batch = 32
channels = 512
height = 64
width = 64
groups = 32
eps = 1e-5


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter((torch.rand(channels) + 0.5).to(torch.bfloat16))
        self.bias = nn.Parameter(torch.randn(channels).to(torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(nn.functional.group_norm(x, groups, self.weight, self.bias, eps))


def get_inputs():
    return [torch.randn(batch, channels, height, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "channels": 128, "height": 16, "width": 16}},
        {"name": "ragged", "sizes": {"batch": 3, "channels": 96, "height": 13, "width": 19}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "channels": 64, "height": 12, "width": 20},
            "layout": "strided",
        },
        {
            "name": "float16",
            "sizes": {"batch": 2, "channels": 160, "height": 9, "width": 24},
            "dtype": "float16",
        },
    ]


ABOUT = {"category": "norm", "regime": "memory"}


def cost(element_bytes=2):
    """Maps read and written, two vectors read; about ten operations an element."""
    elements = batch * channels * height * width
    return {"bytes": (2 * elements + 2 * channels) * element_bytes, "flops": 10 * elements}
