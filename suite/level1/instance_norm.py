"""Each float32 feature map normalised by its own mean and variance: 2048 independent runs of 16384."""

import torch
from torch import nn

batch = 32
channels = 64
height = 128
width = 128
eps = 1e-5


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(channels) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.instance_norm(x, weight=self.gain, bias=self.bias, eps=eps)


def get_inputs():
    return [torch.randn(batch, channels, height, width) * 2 + 0.5]


def get_init_inputs():
    return [channels]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "channels": 16, "height": 32, "width": 64}},
        {"name": "ragged", "sizes": {"batch": 3, "channels": 11, "height": 53, "width": 47}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "channels": 16, "height": 32, "width": 32},
            "layout": "strided",
        },
        {
            "name": "bfloat16",
            "sizes": {"batch": 2, "channels": 20, "height": 50, "width": 40},
            "dtype": "bfloat16",
        },
    ]


ABOUT = {"category": "norm", "regime": "memory"}


def cost(element_bytes=4):
    """x, gains and biases read, y written; two reductions and an affine map."""
    elements = batch * channels * height * width
    return {"bytes": (2 * elements + 2 * channels) * element_bytes, "flops": 7 * elements}
