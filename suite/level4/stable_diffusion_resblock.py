"""Stable Diffusion 1.5, a residual block: GroupNorm, SiLU and 3x3 convolution twice, time, shortcut.

In bfloat16, 640 channels to 320. The norms need a pass of their own; all else can join the convolutions.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 8
groups = 32
group_in = 20
group_out = 10
height = 64
width = 64
time_width = 1280
channels_in = groups * group_in
channels_out = groups * group_out


def vector(channels: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(channels).to(torch.bfloat16))


def gain(channels: int) -> nn.Parameter:
    return nn.Parameter((torch.rand(channels) + 0.5).to(torch.bfloat16))


def kernel(channels_out: int, channels_in: int, size: int) -> nn.Parameter:
    weight = torch.randn(channels_out, channels_in, size, size) / (channels_in * size * size) ** 0.5
    return nn.Parameter(weight.to(torch.bfloat16))


class Model(nn.Module):
    def __init__(self, groups: int, channels_in: int, channels_out: int, time_width: int) -> None:
        super().__init__()
        self.groups = groups
        self.gain1, self.shift1 = gain(channels_in), vector(channels_in)
        self.conv1, self.bias1 = kernel(channels_out, channels_in, 3), vector(channels_out)
        time = torch.randn(channels_out, time_width) / time_width**0.5
        self.time, self.time_bias = nn.Parameter(time.to(torch.bfloat16)), vector(channels_out)
        self.gain2, self.shift2 = gain(channels_out), vector(channels_out)
        self.conv2, self.bias2 = kernel(channels_out, channels_out, 3), vector(channels_out)
        self.shortcut, self.bias3 = kernel(channels_out, channels_in, 1), vector(channels_out)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = F.silu(F.group_norm(x, self.groups, self.gain1, self.shift1))
        y = F.conv2d(y, self.conv1, self.bias1, padding=1)
        y = y + F.linear(F.silu(time), self.time, self.time_bias).unsqueeze(-1).unsqueeze(-1)
        y = F.silu(F.group_norm(y, self.groups, self.gain2, self.shift2))
        return F.conv2d(y, self.conv2, self.bias2, padding=1) + F.conv2d(x, self.shortcut, self.bias3)


def get_inputs():
    return [
        torch.randn(batch, channels_in, height, width, dtype=torch.bfloat16),
        torch.randn(batch, time_width, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return [groups, channels_in, channels_out, time_width]


def cases():
    small = {"batch": 2, "groups": 8, "group_in": 4, "group_out": 2, "time_width": 64}
    odd = {"batch": 3, "groups": 5, "group_in": 3, "group_out": 2, "time_width": 53}
    return [
        {"name": "aligned", "sizes": {**small, "height": 32, "width": 32}},
        {"name": "ragged", "sizes": {**odd, "height": 19, "width": 23}},
        {"name": "strided", "sizes": {**small, "height": 16, "width": 24}, "layout": "strided"},
        {"name": "float32", "sizes": {**small, "height": 16, "width": 16}, "dtype": "float32"},
    ]


ABOUT = {"category": "conv", "regime": "compute"}


def cost(element_bytes=2):
    """x, time and weights read, y written; the 3x3 convolutions at a quarter of their products (Winograd)."""
    places = batch * height * width
    matrices = 10 * channels_in * channels_out + 9 * channels_out**2 + time_width * channels_out
    elements = places * (channels_in + channels_out) + batch * time_width + matrices
    products = 9 * channels_out * (channels_in + channels_out) // 4 + channels_in * channels_out
    return {
        "bytes": (elements + 2 * channels_in + 6 * channels_out) * element_bytes,
        "flops": 2 * (places * products + batch * time_width * channels_out),
    }
