"""A ConvNeXt block in bfloat16: 7x7 depthwise convolution, LayerNorm over channels, GELU MLP, residual.

The norm wants channels last and the input has them first: the way between costs as much as the work.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 64
channels = 192
height = 56
width = 56
expansion = 4
taps = 7
hidden = expansion * channels


def vector(features: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(features).to(torch.bfloat16))


def gain(features: int) -> nn.Parameter:
    return nn.Parameter((torch.rand(features) + 0.5).to(torch.bfloat16))


class Model(nn.Module):
    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.depthwise = nn.Parameter((torch.randn(channels, 1, taps, taps) / taps).to(torch.bfloat16))
        self.depthwise_bias = vector(channels)
        self.gain, self.shift = gain(channels), vector(channels)
        self.up = nn.Parameter((torch.randn(hidden, channels) / channels**0.5).to(torch.bfloat16))
        self.down = nn.Parameter((torch.randn(channels, hidden) / hidden**0.5).to(torch.bfloat16))
        self.up_bias, self.down_bias = vector(hidden), vector(channels)
        self.scale = gain(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.conv2d(x, self.depthwise, self.depthwise_bias, padding=taps // 2, groups=x.shape[1])
        y = F.layer_norm(y.permute(0, 2, 3, 1), self.gain.shape, self.gain, self.shift)
        y = F.linear(F.gelu(F.linear(y, self.up, self.up_bias)), self.down, self.down_bias)
        return x + (y * self.scale).permute(0, 3, 1, 2)


def get_inputs():
    return [torch.randn(batch, channels, height, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels, hidden]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "channels": 64, "height": 16, "width": 16}},
        {"name": "ragged", "sizes": {"batch": 3, "channels": 37, "height": 13, "width": 19}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "channels": 32, "height": 16, "width": 12},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"batch": 2, "channels": 48, "height": 10, "width": 16},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "conv", "regime": "compute"}


def cost(element_bytes=2):
    """x and weights read, y written; the two products of the MLP (depthwise taps are left out)."""
    places = batch * height * width
    weights = channels * (taps * taps + 5) + 2 * channels * hidden + hidden
    return {
        "bytes": (2 * places * channels + weights) * element_bytes,
        "flops": 4 * places * channels * hidden,
    }
