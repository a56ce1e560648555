"""The stem of a ResNet in float32: a 7x7 convolution with stride 2, ReLU, 3x3 pooling with stride 2.

With a stride there is no Winograd or FFT form in use, so the direct count of operations is the least.
"""

import torch
from torch import nn

batch = 256
channels_out = 64
height = 224
width = 224


class Model(nn.Module):
    def __init__(self, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, channels_out, kernel_size=7, stride=2, padding=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.max_pool2d(torch.relu(self.conv(x)), kernel_size=3, stride=2, padding=1)


def get_inputs():
    return [torch.randn(batch, 3, height, width)]


def get_init_inputs():
    return [channels_out]


PRECISION = {"allow_tf32": False}


def cost(element_bytes=4):
    """Image and filters read, pooled map written; 147 products for each element before pooling.

    Filter taps that fall into the padding are no work: the sums below leave them out.
    """
    rows = [sum(0 <= 2 * y + dy - 3 < height for dy in range(7)) for y in range((height + 1) // 2)]
    cols = [sum(0 <= 2 * x + dx - 3 < width for dx in range(7)) for x in range((width + 1) // 2)]
    pooled = batch * channels_out * ((len(rows) + 1) // 2) * ((len(cols) + 1) // 2)
    elements = batch * 3 * height * width + channels_out * (3 * 49 + 1) + pooled
    return {
        "bytes": elements * element_bytes,
        "flops": 2 * batch * channels_out * 3 * sum(rows) * sum(cols),
    }
