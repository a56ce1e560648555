"""A filter of four taps for each channel that looks only backwards: little arithmetic on streaming data."""

import torch
from torch import nn

batch = 8
channels = 4096
length = 4096
taps = 4


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter((torch.randn(channels, 1, taps) / taps**0.5).to(torch.bfloat16))
        self.bias = nn.Parameter(torch.randn(channels).to(torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = nn.functional.pad(x, (taps - 1, 0))
        return nn.functional.conv1d(padded, self.weight, self.bias, groups=x.shape[1])


def get_inputs():
    return [torch.randn(batch, channels, length, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "channels": 64, "length": 256}},
        {"name": "ragged", "sizes": {"batch": 3, "channels": 53, "length": 211}},
        {"name": "strided", "sizes": {"batch": 2, "channels": 48, "length": 160}, "layout": "strided"},
        {"name": "float32", "sizes": {"batch": 2, "channels": 40, "length": 192}, "dtype": "float32"},
    ]


ABOUT = {"category": "conv", "regime": "memory"}


def cost(element_bytes=2):
    """Signal, filters and biases read, result written; two operations for each tap that hits the signal."""
    products = batch * channels * sum(min(k + 1, taps) for k in range(length))
    elements = 2 * batch * channels * length + channels * (taps + 1)
    return {"bytes": elements * element_bytes, "flops": 2 * products}
