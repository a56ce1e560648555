"""A convolution of width three along sequences of 512 channels: three shifted products share an operand."""

import torch
from torch import nn

batch = 16
channels_in = 512
channels_out = 512
length = 4096


class Model(nn.Module):
    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        weight = torch.randn(channels_out, channels_in, 3) / (3 * channels_in) ** 0.5
        self.weight = nn.Parameter(weight.to(torch.bfloat16))
        self.bias = nn.Parameter(torch.randn(channels_out).to(torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv1d(x, self.weight, self.bias, padding=1)


def get_inputs():
    return [torch.randn(batch, channels_in, length, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels_in, channels_out]


def cases():
    aligned = {"batch": 2, "channels_in": 32, "channels_out": 64, "length": 128}
    ragged = {"batch": 3, "channels_in": 29, "channels_out": 37, "length": 101}
    strided = {"batch": 2, "channels_in": 24, "channels_out": 48, "length": 80}
    return [
        {"name": "aligned", "sizes": aligned},
        {"name": "ragged", "sizes": ragged},
        {"name": "strided", "sizes": strided, "layout": "strided"},
        {"name": "float16", "sizes": aligned, "dtype": "float16"},
    ]


ABOUT = {"category": "conv", "regime": "compute"}


def cost(element_bytes=2):
    """Signal, filters and bias read, result written; half the direct terms, as minimal filtering needs."""
    elements = batch * length * (channels_in + channels_out) + (3 * channels_in + 1) * channels_out
    terms = batch * (3 * length - 2) * channels_in * channels_out
    return {"bytes": elements * element_bytes, "flops": 2 * terms // 2}
