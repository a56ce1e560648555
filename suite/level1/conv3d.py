"""A 3x3x3 convolution over short clips in float16: a third axis of reuse for every voxel loaded."""

import torch
from torch import nn

batch = 8
channels_in = 64
channels_out = 64
depth = 16
height = 56
width = 56


class Model(nn.Module):
    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        weight = torch.randn(channels_out, channels_in, 3, 3, 3) / (27 * channels_in) ** 0.5
        self.weight = nn.Parameter(weight.to(torch.float16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv3d(x, self.weight, padding=1)


def get_inputs():
    return [torch.randn(batch, channels_in, depth, height, width, dtype=torch.float16)]


def get_init_inputs():
    return [channels_in, channels_out]


def cases():
    aligned = {"batch": 2, "channels_in": 8, "channels_out": 16, "depth": 4, "height": 8, "width": 16}
    ragged = {"batch": 1, "channels_in": 7, "channels_out": 11, "depth": 5, "height": 9, "width": 13}
    strided = {"batch": 2, "channels_in": 6, "channels_out": 8, "depth": 3, "height": 10, "width": 12}
    return [
        {"name": "aligned", "sizes": aligned},
        {"name": "ragged", "sizes": ragged},
        {"name": "strided", "sizes": strided, "layout": "strided"},
        {"name": "bfloat16", "sizes": aligned, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "conv", "regime": "compute"}


def cost(element_bytes=2):
    """Clip and filters read, the map written; an eighth of the direct terms, as minimal filtering needs."""
    elements = batch * depth * height * width * (channels_in + channels_out)
    elements += 27 * channels_in * channels_out
    taps = (3 * depth - 2) * (3 * height - 2) * (3 * width - 2)
    return {"bytes": elements * element_bytes, "flops": 2 * batch * taps * channels_in * channels_out // 8}
