"""An inception block in bfloat16: 1x1, 3x3, 5x5 and pooled branches of one image, their channels joined.

All four read the same input and write side by side: one reading, no copies for the join.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 256
channels = 192
height = 28
width = 28
single = 64
narrow3 = 96
wide3 = 128
narrow5 = 16
wide5 = 32
pooled = 32


def kernel(channels_out: int, channels_in: int, size: int) -> nn.Parameter:
    weight = torch.randn(channels_out, channels_in, size, size) / (channels_in * size * size) ** 0.5
    return nn.Parameter(weight.to(torch.bfloat16))


class Conv(nn.Module):
    """A convolution that keeps the size of the image, and ReLU."""

    def __init__(self, channels_in: int, channels_out: int, size: int) -> None:
        super().__init__()
        self.weight = kernel(channels_out, channels_in, size)
        self.bias = nn.Parameter(torch.randn(channels_out).to(torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(F.conv2d(x, self.weight, self.bias, padding=self.weight.shape[-1] // 2))


class Model(nn.Module):
    def __init__(
        self, channels: int, single: int, narrow3: int, wide3: int, narrow5: int, wide5: int, pooled: int
    ) -> None:
        super().__init__()
        self.single = Conv(channels, single, 1)
        self.three = nn.Sequential(Conv(channels, narrow3, 1), Conv(narrow3, wide3, 3))
        self.five = nn.Sequential(Conv(channels, narrow5, 1), Conv(narrow5, wide5, 5))
        self.pooled = Conv(channels, pooled, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        smooth = F.max_pool2d(x, 3, stride=1, padding=1)
        return torch.cat((self.single(x), self.three(x), self.five(x), self.pooled(smooth)), 1)


def get_inputs():
    return [torch.randn(batch, channels, height, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels, single, narrow3, wide3, narrow5, wide5, pooled]


def cases():
    few = {"single": 16, "narrow3": 24, "wide3": 32, "narrow5": 8, "wide5": 16, "pooled": 8}
    odd = {"single": 13, "narrow3": 11, "wide3": 19, "narrow5": 7, "wide5": 9, "pooled": 5}
    return [
        {"name": "aligned", "sizes": {**few, "batch": 4, "channels": 32, "height": 16, "width": 16}},
        {"name": "ragged", "sizes": {**odd, "batch": 3, "channels": 37, "height": 13, "width": 17}},
        {
            "name": "strided",
            "sizes": {**few, "batch": 2, "channels": 32, "height": 12, "width": 16},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {**few, "batch": 2, "channels": 24, "height": 14, "width": 14},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "conv", "regime": "compute"}


def cost(element_bytes=2):
    """x and weights read, y written; 3x3 at a quarter and 5x5 at an eighth of their products (Winograd)."""
    places = batch * height * width
    made = single + wide3 + wide5 + pooled
    points = channels * (single + narrow3 + narrow5 + pooled)
    weights = points + 9 * narrow3 * wide3 + 25 * narrow5 * wide5 + made + narrow3 + narrow5
    products = points + 9 * narrow3 * wide3 // 4 + 25 * narrow5 * wide5 // 8
    return {
        "bytes": (places * (channels + made) + weights) * element_bytes,
        "flops": 2 * places * products,
    }
