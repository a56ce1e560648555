"""One stage of a U-Net in bfloat16: a convolution kept as skip, down by two, a middle, up by two, a join.

Five convolutions of different shape; the concatenation before the last need not be made.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 16
channels = 64
half_height = 64
half_width = 64


def kernel(channels_out: int, channels_in: int, size: int) -> nn.Parameter:
    weight = torch.randn(channels_out, channels_in, size, size) / (channels_in * size * size) ** 0.5
    return nn.Parameter(weight.to(torch.bfloat16))


def vector(channels: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(channels).to(torch.bfloat16))


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = 2 * channels
        self.enter, self.enter_bias = kernel(channels, channels, 3), vector(channels)
        self.down, self.down_bias = kernel(inner, channels, 3), vector(inner)
        self.middle, self.middle_bias = kernel(inner, inner, 3), vector(inner)
        up = torch.randn(inner, channels, 2, 2) / inner**0.5
        self.up, self.up_bias = nn.Parameter(up.to(torch.bfloat16)), vector(channels)
        self.leave, self.leave_bias = kernel(channels, inner, 3), vector(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skip = F.silu(F.conv2d(x, self.enter, self.enter_bias, padding=1))
        y = F.silu(F.conv2d(skip, self.down, self.down_bias, stride=2, padding=1))
        y = F.silu(F.conv2d(y, self.middle, self.middle_bias, padding=1))
        y = F.conv_transpose2d(y, self.up, self.up_bias, stride=2)
        return F.silu(F.conv2d(torch.cat((y, skip), 1), self.leave, self.leave_bias, padding=1))


def get_inputs():
    return [torch.randn(batch, channels, 2 * half_height, 2 * half_width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "channels": 16, "half_height": 16, "half_width": 16}},
        {"name": "ragged", "sizes": {"batch": 3, "channels": 11, "half_height": 7, "half_width": 13}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "channels": 8, "half_height": 8, "half_width": 12},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"batch": 1, "channels": 16, "half_height": 12, "half_width": 8},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "conv", "regime": "compute"}


def cost(element_bytes=2):
    """x and weights read, y written; convolutions of stride 1 at a quarter of their products (Winograd)."""
    small, square = half_height * half_width, channels * channels
    weights = 89 * square + 7 * channels
    winograd = 4 * small * 9 * square + small * 36 * square + 4 * small * 18 * square
    down = (3 * half_height - 1) * (3 * half_width - 1) * 2 * square
    products = winograd // 4 + down + 4 * small * 2 * square
    elements = 2 * batch * channels * 4 * small + weights
    return {"bytes": elements * element_bytes, "flops": 2 * batch * products}
