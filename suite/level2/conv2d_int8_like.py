"""A 3x3 convolution of int8 images and int8 filters with exact integer sums, scaled for each image and each
output channel. The specification adds in float32, which holds these sums exactly."""

import torch
from torch import nn

batch = 32
channels_in = 256
channels_out = 256
height = 56
width = 56


class Model(nn.Module):
    def forward(
        self,
        image: torch.Tensor,
        filters: torch.Tensor,
        image_scale: torch.Tensor,
        filter_scale: torch.Tensor,
    ) -> torch.Tensor:
        sums = nn.functional.conv2d(image.float(), filters.float(), padding=1)
        scale = image_scale.float().unsqueeze(-1) * filter_scale.float()
        return (sums * scale[:, :, None, None]).to(image_scale.dtype)


def get_inputs():
    return [
        torch.randint(-127, 128, (batch, channels_in, height, width), dtype=torch.int8),
        torch.randint(-127, 128, (channels_out, channels_in, 3, 3), dtype=torch.int8),
        (torch.rand(batch) * 9.9 + 0.1) / 127,
        (torch.rand(channels_out) * 9.9 + 0.1) / 127,
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {
            "name": "aligned",
            "sizes": {"batch": 4, "channels_in": 16, "channels_out": 16, "height": 16, "width": 16},
        },
        {
            "name": "ragged",
            "sizes": {"batch": 3, "channels_in": 11, "channels_out": 13, "height": 19, "width": 17},
        },
        {
            "name": "strided",
            "sizes": {"batch": 2, "channels_in": 16, "channels_out": 8, "height": 12, "width": 14},
            "layout": "strided",
        },
        {
            "name": "bfloat16",
            "sizes": {"batch": 2, "channels_in": 24, "channels_out": 20, "height": 15, "width": 9},
            "dtype": "bfloat16",
        },
    ]


ABOUT = {"category": "quantisation", "regime": "compute"}


def cost(element_bytes=4):
    """Bytes of image and filters read, the result written; integer sums are no floating-point operations."""
    results = batch * channels_out * height * width
    codes = batch * channels_in * height * width + 9 * channels_in * channels_out
    return {
        "bytes": codes + (results + batch + channels_out) * element_bytes,
        "flops": results,
    }
