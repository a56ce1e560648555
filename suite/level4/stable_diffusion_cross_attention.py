"""Stable Diffusion 1.5, cross-attention at 64x64: 4096 pixels ask 77 text tokens, 8 heads of 40, bfloat16.

Heads of 40 and a context of 77 fit no tile; keys and values are so few that they stay on the chip.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 16
pixels = 4096
heads = 8
head_width = 40
context = 77
context_width = 768
width = heads * head_width


def matrix(features_out: int, features_in: int) -> nn.Parameter:
    return nn.Parameter((torch.randn(features_out, features_in) / features_in**0.5).to(torch.bfloat16))


class Model(nn.Module):
    def __init__(self, width: int, context_width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.gain = nn.Parameter((torch.rand(width) + 0.5).to(torch.bfloat16))
        self.shift = nn.Parameter(torch.randn(width).to(torch.bfloat16))
        self.query, self.out = matrix(width, width), matrix(width, width)
        self.key, self.value = matrix(width, context_width), matrix(width, context_width)
        self.out_bias = nn.Parameter(torch.randn(width).to(torch.bfloat16))

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        y = F.layer_norm(x, self.gain.shape, self.gain, self.shift)
        q = F.linear(y, self.query).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = F.linear(text, self.key).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        v = F.linear(text, self.value).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + F.linear(y, self.out, self.out_bias)


def get_inputs():
    return [
        torch.randn(batch, pixels, width, dtype=torch.bfloat16),
        torch.randn(batch, context, context_width, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return [width, context_width, heads]


def cases():
    small = {"batch": 2, "heads": 4, "head_width": 32, "context": 16, "context_width": 64}
    odd = {"batch": 3, "heads": 3, "head_width": 23, "context": 13, "context_width": 53}
    return [
        {"name": "aligned", "sizes": {**small, "pixels": 256}},
        {"name": "ragged", "sizes": {**odd, "pixels": 211}},
        {"name": "strided", "sizes": {**small, "pixels": 128}, "layout": "strided"},
        {"name": "float32", "sizes": {**small, "pixels": 96}, "dtype": "float32"},
    ]


ABOUT = {"category": "attention", "regime": "compute"}


def cost(element_bytes=2):
    """x, text and weights read, y written; four products and attention."""
    own, other = 2 * width * width, 2 * width * context_width
    elements = batch * (2 * pixels * width + context * context_width) + own + other + 3 * width
    attention = 4 * batch * pixels * context * width
    return {
        "bytes": elements * element_bytes,
        "flops": 2 * batch * (pixels * own + context * other) + attention,
    }
