"""Feature maps shifted around their edges and cut into 7x7 windows: one copy, if both are done at once."""

import torch
from torch import nn

batch = 128
windows_down = 8
windows_across = 8
channels = 128
window = 7
shift = 3


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, height, width, depth = x.shape
        down, across = height // window, width // window
        turned = torch.roll(x, (-shift, -shift), dims=(1, 2))
        tiles = turned.reshape(count, down, window, across, window, depth).transpose(2, 3)
        return tiles.reshape(count * down * across, window * window, depth)


def get_inputs():
    height, width = windows_down * window, windows_across * window
    return [torch.randn(batch, height, width, channels, dtype=torch.bfloat16)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "windows_down": 4, "windows_across": 4, "channels": 64}},
        {"name": "ragged", "sizes": {"batch": 3, "windows_down": 3, "windows_across": 5, "channels": 37}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "windows_down": 2, "windows_across": 3, "channels": 64},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"batch": 1, "windows_down": 5, "windows_across": 4, "channels": 50},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "index", "regime": "memory"}


def cost(element_bytes=2):
    """Each element read once and written once; no arithmetic."""
    elements = batch * windows_down * windows_across * window * window * channels
    return {"bytes": 2 * elements * element_bytes, "flops": 0}
