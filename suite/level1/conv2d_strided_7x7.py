"""The first layer of an image network: 7x7 filters, stride 2, three channels to sixty-four, in float16.

Three channels fill no tensor-core tile, and the result is five times as large as the image.
"""

import torch
from torch import nn

batch = 128
channels_in = 3
channels_out = 64
height = 224
width = 224


class Model(nn.Module):
    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        weight = torch.randn(channels_out, channels_in, 7, 7) / (49 * channels_in) ** 0.5
        self.weight = nn.Parameter(weight.to(torch.float16))
        self.bias = nn.Parameter(torch.randn(channels_out).to(torch.float16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv2d(x, self.weight, self.bias, stride=2, padding=3)


def get_inputs():
    return [torch.randn(batch, channels_in, height, width, dtype=torch.float16)]


def get_init_inputs():
    return [channels_in, channels_out]


def cases():
    aligned = {"batch": 2, "channels_out": 16, "height": 32, "width": 32}
    ragged = {"batch": 3, "channels_in": 5, "channels_out": 19, "height": 29, "width": 23}
    strided = {"batch": 2, "channels_out": 24, "height": 24, "width": 20}
    return [
        {"name": "aligned", "sizes": aligned},
        {"name": "ragged", "sizes": ragged},
        {"name": "strided", "sizes": strided, "layout": "strided"},
        {"name": "bfloat16", "sizes": aligned, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "conv", "regime": "memory"}


def cost(element_bytes=2):
    """Image, filters and bias read, the map written; two operations for each tap that hits the image."""
    rows = [sum(0 <= 2 * y + dy - 3 < height for dy in range(7)) for y in range((height + 1) // 2)]
    cols = [sum(0 <= 2 * x + dx - 3 < width for dx in range(7)) for x in range((width + 1) // 2)]
    read = batch * channels_in * height * width + channels_out * (49 * channels_in + 1)
    written = batch * channels_out * len(rows) * len(cols)
    flops = 2 * batch * channels_out * channels_in * sum(rows) * sum(cols)
    return {"bytes": (read + written) * element_bytes, "flops": flops}
