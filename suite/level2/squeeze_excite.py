"""Channel means, two tiny linear layers and a sigmoid: a reduction that gates its own input."""

import torch
from torch import nn

batch = 128
channels = 256
height = 56
width = 56
squeezed = 16


class Model(nn.Module):
    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.down = nn.Parameter((torch.randn(squeezed, channels) / channels**0.5).to(torch.bfloat16))
        self.down_bias = nn.Parameter(torch.randn(squeezed).to(torch.bfloat16))
        self.up = nn.Parameter((torch.randn(channels, squeezed) / squeezed**0.5).to(torch.bfloat16))
        self.up_bias = nn.Parameter(torch.randn(channels).to(torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = torch.relu(nn.functional.linear(x.mean((2, 3)), self.down, self.down_bias))
        gate = torch.sigmoid(nn.functional.linear(inside, self.up, self.up_bias))
        return x * gate.unsqueeze(-1).unsqueeze(-1)


def get_inputs():
    # Each map has a mean of its own: means of pure noise would all be nearly zero.
    means = torch.randn(batch, channels, 1, 1, dtype=torch.bfloat16) * 2
    return [torch.randn(batch, channels, height, width, dtype=torch.bfloat16) + means]


def get_init_inputs():
    return [channels, squeezed]


def cases():
    aligned = {"batch": 4, "channels": 64, "height": 16, "width": 16, "squeezed": 8}
    ragged = {"batch": 3, "channels": 53, "height": 13, "width": 19, "squeezed": 7}
    strided = {"batch": 2, "channels": 48, "height": 12, "width": 20, "squeezed": 12}
    return [
        {"name": "aligned", "sizes": aligned},
        {"name": "ragged", "sizes": ragged},
        {"name": "strided", "sizes": strided, "layout": "strided"},
        {"name": "float32", "sizes": aligned, "dtype": "float32"},
    ]


ABOUT = {"category": "reduction", "regime": "memory"}


def cost(element_bytes=2):
    """Maps read once and written, weights read; a sum and a product an element, two products an item."""
    elements = batch * channels * height * width
    weights = 2 * channels * squeezed + channels + squeezed
    flops = 2 * elements + 4 * batch * channels * squeezed
    return {"bytes": (2 * elements + weights) * element_bytes, "flops": flops}
