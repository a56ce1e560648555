"""A mixer block in bfloat16: an MLP across patches, then one across channels, each behind a norm and added.

The first MLP works on the transposed image: a kernel reads columns instead of making the transpose.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 256
patches = 196
channels = 768
patch_hidden = 384
channel_hidden = 3072


def matrix(features_out: int, features_in: int) -> nn.Parameter:
    return nn.Parameter((torch.randn(features_out, features_in) / features_in**0.5).to(torch.bfloat16))


def vector(features: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(features).to(torch.bfloat16))


def gain(features: int) -> nn.Parameter:
    return nn.Parameter((torch.rand(features) + 0.5).to(torch.bfloat16))


class Mlp(nn.Module):
    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.up, self.up_bias = matrix(hidden, features), vector(hidden)
        self.down, self.down_bias = matrix(features, hidden), vector(features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(F.gelu(F.linear(x, self.up, self.up_bias)), self.down, self.down_bias)


class Model(nn.Module):
    def __init__(self, patches: int, channels: int, patch_hidden: int, channel_hidden: int) -> None:
        super().__init__()
        self.gain1, self.shift1 = gain(channels), vector(channels)
        self.gain2, self.shift2 = gain(channels), vector(channels)
        self.across_patches = Mlp(patches, patch_hidden)
        self.across_channels = Mlp(channels, channel_hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.layer_norm(x, self.gain1.shape, self.gain1, self.shift1)
        x = x + self.across_patches(y.transpose(1, 2)).transpose(1, 2)
        return x + self.across_channels(F.layer_norm(x, self.gain2.shape, self.gain2, self.shift2))


def get_inputs():
    return [torch.randn(batch, patches, channels, dtype=torch.bfloat16)]


def get_init_inputs():
    return [patches, channels, patch_hidden, channel_hidden]


def cases():
    return [
        {
            "name": "aligned",
            "sizes": {"batch": 8, "patches": 64, "channels": 128, "patch_hidden": 64, "channel_hidden": 256},
        },
        {
            "name": "ragged",
            "sizes": {"batch": 7, "patches": 49, "channels": 97, "patch_hidden": 41, "channel_hidden": 151},
        },
        {
            "name": "strided",
            "sizes": {"batch": 4, "patches": 32, "channels": 64, "patch_hidden": 48, "channel_hidden": 128},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"batch": 4, "patches": 36, "channels": 64, "patch_hidden": 48, "channel_hidden": 96},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "matmul", "regime": "compute"}


def cost(element_bytes=2):
    """x and weights read, y written; four products."""
    weights = 2 * patches * patch_hidden + 2 * channels * channel_hidden
    vectors = 5 * channels + patches + patch_hidden + channel_hidden
    products = patches * channels * (patch_hidden + channel_hidden)
    return {
        "bytes": (2 * batch * patches * channels + weights + vectors) * element_bytes,
        "flops": 4 * batch * products,
    }
