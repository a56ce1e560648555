"""A causal filter of four taps for each channel, then SiLU, where channels lie side by side in memory."""

import torch
from torch import nn

batch = 8
length = 4096
channels = 4096
taps = 4


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter((torch.randn(channels, 1, taps) / taps**0.5).to(torch.bfloat16))
        self.bias = nn.Parameter(torch.randn(channels).to(torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = nn.functional.pad(x.transpose(1, 2), (taps - 1, 0))
        y = nn.functional.conv1d(padded, self.weight, self.bias, groups=x.shape[2])
        return nn.functional.silu(y).transpose(1, 2)


def get_inputs():
    return [torch.randn(batch, length, channels, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "length": 128, "channels": 128}},
        {"name": "ragged", "sizes": {"batch": 3, "length": 101, "channels": 97}},
        {"name": "strided", "sizes": {"batch": 2, "length": 80, "channels": 112}, "layout": "strided"},
        {"name": "float32", "sizes": {"batch": 2, "length": 96, "channels": 80}, "dtype": "float32"},
    ]


ABOUT = {"category": "conv", "regime": "memory"}


def cost(element_bytes=2):
    """Signal, filters and biases read, result written; two operations a tap, five for the activation."""
    elements = batch * length * channels
    products = batch * channels * sum(min(k + 1, taps) for k in range(length))
    bytes_moved = (2 * elements + channels * (taps + 1)) * element_bytes
    return {"bytes": bytes_moved, "flops": 2 * products + 5 * elements}
