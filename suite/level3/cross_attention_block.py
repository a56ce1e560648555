"""A cross-attention block in bfloat16: a long sequence asks a short context, then an MLP, each added.

The context's keys and values fit on the chip, so the work is the projections around the attention.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 8
sequence = 2048
context = 256
context_width = 768
heads = 16
head_width = 64
width = heads * head_width
hidden = 4 * width


def matrix(features_out: int, features_in: int) -> nn.Parameter:
    return nn.Parameter((torch.randn(features_out, features_in) / features_in**0.5).to(torch.bfloat16))


def vector(features: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(features).to(torch.bfloat16))


def gain(features: int) -> nn.Parameter:
    return nn.Parameter((torch.rand(features) + 0.5).to(torch.bfloat16))


class Model(nn.Module):
    def __init__(self, width: int, context_width: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.gain1, self.shift1 = gain(width), vector(width)
        self.query, self.out = matrix(width, width), matrix(width, width)
        self.key, self.value = matrix(width, context_width), matrix(width, context_width)
        self.out_bias = vector(width)
        self.gain2, self.shift2 = gain(width), vector(width)
        self.up, self.up_bias = matrix(hidden, width), vector(hidden)
        self.down, self.down_bias = matrix(width, hidden), vector(width)

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        y = F.layer_norm(x, self.gain1.shape, self.gain1, self.shift1)
        q = F.linear(y, self.query).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = F.linear(memory, self.key).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        v = F.linear(memory, self.value).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + F.linear(y, self.out, self.out_bias)
        y = F.layer_norm(x, self.gain2.shape, self.gain2, self.shift2)
        return x + F.linear(F.gelu(F.linear(y, self.up, self.up_bias)), self.down, self.down_bias)


def get_inputs():
    return [
        torch.randn(batch, sequence, width, dtype=torch.bfloat16),
        torch.randn(batch, context, context_width, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return [width, context_width, hidden, heads]


def cases():
    small = {"batch": 2, "context": 32, "context_width": 64, "heads": 4, "head_width": 32}
    odd = {"batch": 3, "context": 17, "context_width": 53, "heads": 3, "head_width": 24}
    return [
        {"name": "aligned", "sizes": {**small, "sequence": 128}},
        {"name": "ragged", "sizes": {**odd, "sequence": 83}},
        {"name": "strided", "sizes": {**small, "sequence": 64}, "layout": "strided"},
        {"name": "float32", "sizes": {**small, "sequence": 48}, "dtype": "float32"},
    ]


ABOUT = {"category": "attention", "regime": "compute"}


def cost(element_bytes=2):
    """x, the context and the weights read, y written; six products and attention."""
    tokens, asked = batch * sequence, batch * context
    own, other = 2 * width * width + 2 * width * hidden, 2 * width * context_width
    elements = 2 * tokens * width + asked * context_width + own + other + 6 * width + hidden
    attention = 4 * batch * sequence * context * width
    return {
        "bytes": elements * element_bytes,
        "flops": 2 * tokens * own + 2 * asked * other + attention,
    }
