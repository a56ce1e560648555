"""GroupNorm of float32 feature maps: each group is one run of 32768 numbers with eight gains in it."""

import torch
from torch import nn

batch = 32
groups = 32
group_channels = 8
height = 64
width = 64
eps = 1e-5


class Model(nn.Module):
    def __init__(self, groups: int, channels: int) -> None:
        super().__init__()
        self.groups = groups
        self.gain = nn.Parameter(torch.rand(channels) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.group_norm(x, self.groups, self.gain, self.bias, eps)


def get_inputs():
    return [torch.randn(batch, groups * group_channels, height, width) * 2 + 0.5]


def get_init_inputs():
    return [groups, groups * group_channels]


def cases():
    return [
        {
            "name": "aligned",
            "sizes": {"batch": 2, "groups": 8, "group_channels": 4, "height": 32, "width": 32},
        },
        {
            "name": "ragged",
            "sizes": {"batch": 3, "groups": 5, "group_channels": 7, "height": 29, "width": 31},
        },
        {
            "name": "strided",
            "sizes": {"batch": 2, "groups": 4, "group_channels": 8, "height": 16, "width": 32},
            "layout": "strided",
        },
        {
            "name": "bfloat16",
            "sizes": {"batch": 2, "groups": 6, "group_channels": 5, "height": 28, "width": 28},
            "dtype": "bfloat16",
        },
    ]


ABOUT = {"category": "norm", "regime": "memory"}


def cost(element_bytes=4):
    """x, gains and biases read, y written; two reductions and an affine map."""
    channels = groups * group_channels
    elements = batch * channels * height * width
    return {"bytes": (2 * elements + 2 * channels) * element_bytes, "flops": 7 * elements}
