"""A pre-norm transformer block in bfloat16: causal attention, then a GELU MLP, each added to what came in.

Four matrix products with attention between them; norms, biases, activation and sums are there to be fused.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 8
sequence = 1024
heads = 16
head_width = 128
width = heads * head_width
hidden = 4 * width


def matrix(features_out: int, features_in: int) -> nn.Parameter:
    return nn.Parameter((torch.randn(features_out, features_in) / features_in**0.5).to(torch.bfloat16))


def vector(features: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(features).to(torch.bfloat16))


def gain(features: int) -> nn.Parameter:
    return nn.Parameter((torch.rand(features) + 0.5).to(torch.bfloat16))


class Model(nn.Module):
    def __init__(self, width: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.gain1, self.shift1 = gain(width), vector(width)
        self.qkv, self.qkv_bias = matrix(3 * width, width), vector(3 * width)
        self.out, self.out_bias = matrix(width, width), vector(width)
        self.gain2, self.shift2 = gain(width), vector(width)
        self.up, self.up_bias = matrix(hidden, width), vector(hidden)
        self.down, self.down_bias = matrix(width, hidden), vector(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.layer_norm(x, self.gain1.shape, self.gain1, self.shift1)
        y = F.linear(y, self.qkv, self.qkv_bias).unflatten(-1, (3, self.heads, -1))
        q, k, v = y.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + F.linear(y, self.out, self.out_bias)
        y = F.layer_norm(x, self.gain2.shape, self.gain2, self.shift2)
        return x + F.linear(F.gelu(F.linear(y, self.up, self.up_bias)), self.down, self.down_bias)


def get_inputs():
    return [torch.randn(batch, sequence, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, hidden, heads]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 4, "sequence": 64, "heads": 4, "head_width": 64}},
        {"name": "ragged", "sizes": {"batch": 3, "sequence": 53, "heads": 3, "head_width": 40}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "sequence": 64, "heads": 4, "head_width": 32},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"batch": 2, "sequence": 48, "heads": 2, "head_width": 64},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "attention", "regime": "compute"}


def cost(element_bytes=2):
    """x and the weights read, y written; four products, and attention over the lower triangle."""
    tokens = batch * sequence
    weights = 4 * width * width + 2 * width * hidden + 9 * width + hidden
    pairs = batch * heads * sequence * (sequence + 1) // 2
    return {
        "bytes": (2 * tokens * width + weights) * element_bytes,
        "flops": 2 * tokens * (4 * width * width + 2 * width * hidden) + 4 * pairs * head_width,
    }
