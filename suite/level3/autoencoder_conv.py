"""A convolutional autoencoder in bfloat16: two convolutions down by two, two transposed ones back up, tanh.

Three channels at both ends, so the outer layers move data and the inner ones compute.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 256
quarter_height = 56
quarter_width = 56
channels = 3
inner = 64
code = 128


def vector(channels: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(channels).to(torch.bfloat16))


def down(channels_in: int, channels_out: int) -> nn.Parameter:
    weight = torch.randn(channels_out, channels_in, 4, 4) / (16 * channels_in) ** 0.5
    return nn.Parameter(weight.to(torch.bfloat16))


def up(channels_in: int, channels_out: int) -> nn.Parameter:
    weight = torch.randn(channels_in, channels_out, 4, 4) / (4 * channels_in) ** 0.5
    return nn.Parameter(weight.to(torch.bfloat16))


class Model(nn.Module):
    def __init__(self, channels: int, inner: int, code: int) -> None:
        super().__init__()
        self.down1, self.bias1 = down(channels, inner), vector(inner)
        self.down2, self.bias2 = down(inner, code), vector(code)
        self.up1, self.bias3 = up(code, inner), vector(inner)
        self.up2 = up(inner, channels)
        # Small, or whole channels end where tanh is flat.
        self.bias4 = nn.Parameter((torch.randn(channels) * 0.3).to(torch.bfloat16))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = torch.relu(F.conv2d(image, self.down1, self.bias1, stride=2, padding=1))
        x = torch.relu(F.conv2d(x, self.down2, self.bias2, stride=2, padding=1))
        x = torch.relu(F.conv_transpose2d(x, self.up1, self.bias3, stride=2, padding=1))
        return torch.tanh(F.conv_transpose2d(x, self.up2, self.bias4, stride=2, padding=1))


def get_inputs():
    return [torch.randn(batch, channels, 4 * quarter_height, 4 * quarter_width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels, inner, code]


def cases():
    few = {"inner": 16, "code": 32}
    return [
        {"name": "aligned", "sizes": {**few, "batch": 8, "quarter_height": 16, "quarter_width": 16}},
        {
            "name": "ragged",
            "sizes": {"inner": 13, "code": 29, "batch": 5, "quarter_height": 11, "quarter_width": 7},
        },
        {
            "name": "strided",
            "sizes": {**few, "batch": 4, "quarter_height": 8, "quarter_width": 12},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {**few, "batch": 3, "quarter_height": 9, "quarter_width": 8},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "conv", "regime": "compute"}


def cost(element_bytes=2):
    """Image and weights read, image written; no taps that fall outside the image."""
    pixels = 16 * quarter_height * quarter_width
    outer = (8 * quarter_height - 2) * (8 * quarter_width - 2) * channels * inner
    middle = (4 * quarter_height - 2) * (4 * quarter_width - 2) * inner * code
    weights = 32 * (channels * inner + inner * code) + 2 * inner + code + channels
    elements = 2 * batch * channels * pixels + weights
    return {"bytes": elements * element_bytes, "flops": 4 * batch * (outer + middle)}
