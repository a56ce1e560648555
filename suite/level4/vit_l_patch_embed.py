"""ViT-L/16, from images to tokens in bfloat16: patches projected to 1024, a class token, positions.

The convolution is a product of patches scattered in the image; the join and the sum are its epilogue.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 256
channels = 3
grid = 14
patch = 16
width = 1024


class Model(nn.Module):
    def __init__(self, channels: int, patch: int, tokens: int, width: int) -> None:
        super().__init__()
        weight = torch.randn(width, channels, patch, patch) / (channels * patch * patch) ** 0.5
        self.weight = nn.Parameter(weight.to(torch.bfloat16))
        self.bias = nn.Parameter(torch.randn(width).to(torch.bfloat16))
        self.token = nn.Parameter(torch.randn(1, 1, width).to(torch.bfloat16))
        self.position = nn.Parameter(torch.randn(tokens, width).to(torch.bfloat16))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = F.conv2d(image, self.weight, self.bias, stride=self.weight.shape[-1])
        x = x.flatten(2).transpose(1, 2)
        return torch.cat((self.token.expand(image.shape[0], -1, -1), x), 1) + self.position


def get_inputs():
    return [torch.randn(batch, channels, grid * patch, grid * patch, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels, patch, grid * grid + 1, width]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 8, "grid": 8, "patch": 8, "width": 128}},
        {"name": "ragged", "sizes": {"batch": 7, "grid": 5, "patch": 7, "width": 97}},
        {"name": "strided", "sizes": {"batch": 4, "grid": 4, "patch": 8, "width": 64}, "layout": "strided"},
        {"name": "float32", "sizes": {"batch": 4, "grid": 4, "patch": 6, "width": 96}, "dtype": "float32"},
    ]


ABOUT = {"category": "conv", "regime": "compute"}


def cost(element_bytes=2):
    """Images and weights read, tokens written; one product."""
    places, pixels = grid * grid, channels * patch * patch
    weights = (pixels + places + 3) * width
    elements = batch * (places * pixels + (places + 1) * width) + weights
    return {"bytes": elements * element_bytes, "flops": 2 * batch * places * pixels * width}
