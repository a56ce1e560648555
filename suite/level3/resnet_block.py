"""A residual block in bfloat16: two 3x3 convolutions, batch norm with known statistics, a projected shortcut.

The norms are mere scales and shifts here: they belong into the convolutions, as do ReLU and the sum.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 64
channels_in = 128
channels_out = 256
height = 56
width = 56


def kernel(channels_out: int, channels_in: int, size: int) -> nn.Parameter:
    weight = torch.randn(channels_out, channels_in, size, size) / (channels_in * size * size) ** 0.5
    return nn.Parameter(weight.to(torch.bfloat16))


class Norm(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = nn.Parameter((torch.rand(channels) + 0.5).to(torch.bfloat16))
        self.bias = nn.Parameter(torch.randn(channels).to(torch.bfloat16))
        self.register_buffer("mean", (torch.randn(channels) * 0.5).to(torch.bfloat16))
        self.register_buffer("variance", (torch.rand(channels) + 0.5).to(torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, self.mean, self.variance, self.gain, self.bias)


class Model(nn.Module):
    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.first, self.first_norm = kernel(channels_out, channels_in, 3), Norm(channels_out)
        self.second, self.second_norm = kernel(channels_out, channels_out, 3), Norm(channels_out)
        self.shortcut, self.shortcut_norm = kernel(channels_out, channels_in, 1), Norm(channels_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first_norm(F.conv2d(x, self.first, stride=2, padding=1)))
        y = self.second_norm(F.conv2d(y, self.second, padding=1))
        return torch.relu(y + self.shortcut_norm(F.conv2d(x, self.shortcut, stride=2)))


def get_inputs():
    return [torch.randn(batch, channels_in, height, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels_in, channels_out]


def cases():
    small = {"batch": 4, "channels_in": 16, "channels_out": 32}
    return [
        {"name": "aligned", "sizes": {**small, "height": 32, "width": 32}},
        {
            "name": "ragged",
            "sizes": {"batch": 3, "channels_in": 19, "channels_out": 23, "height": 29, "width": 31},
        },
        {"name": "strided", "sizes": {**small, "height": 16, "width": 24}, "layout": "strided"},
        {"name": "float32", "sizes": {**small, "batch": 2, "height": 24, "width": 16}, "dtype": "float32"},
    ]


ABOUT = {"category": "conv", "regime": "compute"}


def cost(element_bytes=2):
    """x and weights read, y written; the convolution of stride 1 at a quarter of its products (Winograd)."""
    rows, cols = (height + 1) // 2, (width + 1) // 2
    weights = channels_out * (10 * channels_in + 9 * channels_out + 12)
    elements = batch * (channels_in * height * width + channels_out * rows * cols) + weights
    first = (3 * rows - 2) * (3 * cols - 2) * channels_in
    second = (3 * rows - 2) * (3 * cols - 2) * channels_out // 4
    shortcut = rows * cols * channels_in
    return {
        "bytes": elements * element_bytes,
        "flops": 2 * batch * channels_out * (first + second + shortcut),
    }
