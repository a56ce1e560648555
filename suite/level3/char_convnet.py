"""A classifier of characters in float32: table look-up, two convolutions with pooling, maximum, head.

The first convolution follows a table of few rows: its products with all characters could be made beforehand.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 128
length = 1014
characters = 96
embedding = 64
channels = 256
classes = 32


class Model(nn.Module):
    def __init__(self, characters: int, embedding: int, channels: int, classes: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(characters, embedding))
        self.first = nn.Parameter(torch.randn(channels, embedding, 7) / (7 * embedding) ** 0.5)
        self.second = nn.Parameter(torch.randn(channels, channels, 3) / (3 * channels) ** 0.5)
        self.first_bias = nn.Parameter(torch.randn(channels))
        self.second_bias = nn.Parameter(torch.randn(channels))
        self.head = nn.Parameter(torch.randn(classes, channels) / channels**0.5)
        self.head_bias = nn.Parameter(torch.randn(classes))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = F.embedding(text, self.table).transpose(1, 2)
        x = torch.relu(F.conv1d(x, self.first, self.first_bias, padding=3))
        x = F.max_pool1d(x, 3, ceil_mode=True)
        x = torch.relu(F.conv1d(x, self.second, self.second_bias, padding=1))
        return F.linear(x.amax(-1), self.head, self.head_bias)


def get_inputs():
    return [torch.randint(0, characters, (batch, length))]


def get_init_inputs():
    return [characters, embedding, channels, classes]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 64, "length": 128, "embedding": 32, "channels": 64}},
        {
            "name": "ragged",
            "sizes": {"batch": 53, "length": 101, "embedding": 19, "channels": 37, "classes": 7},
        },
        {
            "name": "strided",
            "sizes": {"batch": 48, "length": 64, "embedding": 16, "channels": 48},
            "layout": "strided",
        },
        {"name": "short", "sizes": {"batch": 64, "length": 5, "embedding": 32, "channels": 64}},
    ]


ABOUT = {"category": "conv", "regime": "compute"}


def cost(element_bytes=4):
    """8-byte characters, weights, logits; products with the table made once, the rest at half."""
    cells = (length + 2) // 3
    weights = (
        characters * embedding + channels * (7 * embedding + 3 * channels + 2) + classes * (channels + 1)
    )
    first = min(batch * length, characters) * 7 * embedding * channels
    second = batch * cells * 3 * channels * channels // 2
    return {
        "bytes": 8 * batch * length + (weights + batch * classes) * element_bytes,
        "flops": 2 * (first + second + batch * channels * classes),
    }
