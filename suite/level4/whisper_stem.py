"""Whisper large, the stem: two 1-D convolutions over mel frames with GELU, the second by two, plus positions.

In bfloat16. The result is wanted with channels last, so the last transpose belongs into the convolution.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 16
mels = 80
frames = 3000
width = 1280


class Model(nn.Module):
    def __init__(self, mels: int, width: int, positions: int) -> None:
        super().__init__()
        self.first = nn.Parameter((torch.randn(width, mels, 3) / (3 * mels) ** 0.5).to(torch.bfloat16))
        self.second = nn.Parameter((torch.randn(width, width, 3) / (3 * width) ** 0.5).to(torch.bfloat16))
        self.first_bias = nn.Parameter(torch.randn(width).to(torch.bfloat16))
        self.second_bias = nn.Parameter(torch.randn(width).to(torch.bfloat16))
        self.position = nn.Parameter(torch.randn(positions, width).to(torch.bfloat16))

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        x = F.gelu(F.conv1d(mel, self.first, self.first_bias, padding=1))
        x = F.gelu(F.conv1d(x, self.second, self.second_bias, stride=2, padding=1))
        return x.transpose(1, 2) + self.position


def get_inputs():
    return [torch.randn(batch, mels, frames, dtype=torch.bfloat16)]


def get_init_inputs():
    return [mels, width, (frames + 1) // 2]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 4, "mels": 32, "frames": 128, "width": 128}},
        {"name": "ragged", "sizes": {"batch": 3, "mels": 29, "frames": 151, "width": 97}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "mels": 16, "frames": 96, "width": 64},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"batch": 2, "mels": 24, "frames": 100, "width": 80},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "conv", "regime": "compute"}


def cost(element_bytes=2):
    """Frames and weights read, y written; the first convolution at half its products (Winograd)."""
    positions = (frames + 1) // 2
    weights = 3 * width * (mels + width) + 2 * width + positions * width
    elements = batch * (mels * frames + positions * width) + weights
    first = 3 * frames * mels * width // 2
    second = (3 * positions - 2) * width * width
    return {"bytes": elements * element_bytes, "flops": 2 * batch * (first + second)}
