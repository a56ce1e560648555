"""SAM ViT-B, window attention in bfloat16: 14x14 windows of a padded 64x64 map, positions by row and column.

Neither the padded copy nor the partition need be in memory; the biases depend on the queries.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 8
height = 64
width = 64
heads = 12
head_width = 64
window = 14
channels = heads * head_width


def matrix(features_out: int, features_in: int) -> nn.Parameter:
    return nn.Parameter((torch.randn(features_out, features_in) / features_in**0.5).to(torch.bfloat16))


def vector(features: int) -> nn.Parameter:
    return nn.Parameter((torch.randn(features) * 0.2).to(torch.bfloat16))


class Model(nn.Module):
    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.qkv_bias = matrix(3 * channels, channels), vector(3 * channels)
        self.out, self.out_bias = matrix(channels, channels), vector(channels)
        self.rows = matrix(2 * window - 1, channels // heads)
        self.cols = matrix(2 * window - 1, channels // heads)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        height, width = x.shape[1:3]
        down, across = -(-height // window), -(-width // window)
        x = F.pad(x, (0, 0, 0, across * window - width, 0, down * window - height))
        x = x.unflatten(2, (across, window)).unflatten(1, (down, window)).transpose(2, 3)
        tokens = x.flatten(0, 2).flatten(1, 2)
        qkv = F.linear(tokens, self.qkv, self.qkv_bias).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        place = torch.arange(window, device=x.device)
        apart = place.unsqueeze(-1) - place + window - 1
        square = q.unflatten(2, (window, window))
        by_row = torch.einsum("nhrcd,rkd->nhrck", square, self.rows[apart])
        by_col = torch.einsum("nhrcd,ckd->nhrck", square, self.cols[apart])
        bias = (by_row.unsqueeze(-1) + by_col.unsqueeze(-2)).flatten(-2).flatten(2, 3)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2)
        y = F.linear(y, self.out, self.out_bias).unflatten(1, (window, window))
        y = y.unflatten(0, (-1, down, across)).transpose(2, 3).flatten(3, 4).flatten(1, 2)
        return y[:, :height, :width]


def get_inputs():
    return [torch.randn(batch, height, width, channels, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels, heads]


def cases():
    small = {"heads": 2, "head_width": 32}
    return [
        {"name": "aligned", "sizes": {**small, "batch": 2, "height": 28, "width": 28}},
        {"name": "ragged", "sizes": {"heads": 3, "head_width": 20, "batch": 3, "height": 17, "width": 31}},
        {"name": "strided", "sizes": {**small, "batch": 2, "height": 20, "width": 16}, "layout": "strided"},
        {"name": "float32", "sizes": {**small, "batch": 1, "height": 14, "width": 24}, "dtype": "float32"},
    ]


ABOUT = {"category": "attention", "regime": "compute"}


def cost(element_bytes=2):
    """x and weights read, y written; projections, and attention among the places that exist."""
    places = batch * height * width
    weights = 4 * channels * channels + 4 * channels + 2 * (2 * window - 1) * head_width
    rows = height // window * window**2 + (height % window) ** 2
    cols = width // window * window**2 + (width % window) ** 2
    return {
        "bytes": (2 * places * channels + weights) * element_bytes,
        "flops": 8 * places * channels * channels + 4 * batch * rows * cols * channels,
    }
