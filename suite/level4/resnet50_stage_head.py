"""ResNet-50, the first bottleneck of its third stage in bfloat16: 1x1, 3x3 by two, 1x1, projected shortcut.

Four convolutions with batch norm of known statistics: scales and shifts that belong into them, as ReLU does.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 128
channels_in = 512
middle = 256
channels_out = 1024
height = 28
width = 28


class ConvNorm(nn.Module):
    """A convolution, then batch norm in its form for inference."""

    def __init__(self, channels_in: int, channels_out: int, size: int, stride: int = 1) -> None:
        super().__init__()
        self.stride = stride
        weight = torch.randn(channels_out, channels_in, size, size) / (channels_in * size * size) ** 0.5
        self.weight = nn.Parameter(weight.to(torch.bfloat16))
        self.gain = nn.Parameter((torch.rand(channels_out) + 0.5).to(torch.bfloat16))
        self.bias = nn.Parameter(torch.randn(channels_out).to(torch.bfloat16))
        self.register_buffer("mean", (torch.randn(channels_out) * 0.5).to(torch.bfloat16))
        self.register_buffer("variance", (torch.rand(channels_out) + 0.5).to(torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.conv2d(x, self.weight, stride=self.stride, padding=self.weight.shape[-1] // 2)
        return F.batch_norm(x, self.mean, self.variance, self.gain, self.bias)


class Model(nn.Module):
    def __init__(self, channels_in: int, middle: int, channels_out: int) -> None:
        super().__init__()
        self.reduce = ConvNorm(channels_in, middle, 1)
        self.spatial = ConvNorm(middle, middle, 3, stride=2)
        self.expand = ConvNorm(middle, channels_out, 1)
        self.shortcut = ConvNorm(channels_in, channels_out, 1, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.spatial(torch.relu(self.reduce(x))))
        return torch.relu(self.expand(y) + self.shortcut(x))


def get_inputs():
    return [torch.randn(batch, channels_in, height, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels_in, middle, channels_out]


def cases():
    small = {"channels_in": 32, "middle": 16, "channels_out": 64}
    odd = {"channels_in": 37, "middle": 19, "channels_out": 53}
    return [
        {"name": "aligned", "sizes": {**small, "batch": 8, "height": 16, "width": 16}},
        {"name": "ragged", "sizes": {**odd, "batch": 5, "height": 13, "width": 17}},
        {"name": "strided", "sizes": {**small, "batch": 4, "height": 12, "width": 16}, "layout": "strided"},
        {"name": "float32", "sizes": {**small, "batch": 3, "height": 14, "width": 10}, "dtype": "float32"},
    ]


ABOUT = {"category": "conv", "regime": "compute"}


def cost(element_bytes=2):
    """x and weights read, y written; all products but those with the padding."""
    rows, cols = (height + 1) // 2, (width + 1) // 2
    matrices = channels_in * (middle + channels_out) + 9 * middle * middle + middle * channels_out
    weights = matrices + 8 * middle + 8 * channels_out
    elements = batch * (channels_in * height * width + channels_out * rows * cols) + weights
    products = height * width * channels_in * middle + (3 * rows - 2) * (3 * cols - 2) * middle * middle
    products += rows * cols * (middle + channels_in) * channels_out
    return {"bytes": elements * element_bytes, "flops": 2 * batch * products}
