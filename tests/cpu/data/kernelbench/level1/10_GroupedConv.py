"""Our own fixture: channels must be divisible by the groups, and one constant is computed from others."""

import torch
import torch.nn as nn

batch_size = 16
groups = 4
channels_per_group = 16
in_channels = groups * channels_per_group
out_channels = 128
height = 256
width = 192


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, groups):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, padding=1, groups=groups)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width, device="cuda")]


def get_init_inputs():
    return [in_channels, out_channels, groups]
