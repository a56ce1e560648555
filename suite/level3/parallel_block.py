"""A transformer block with attention and MLP side by side on one norm, in bfloat16.

All projections of the normed input can be one product, and so can the two that lead back.
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


class Model(nn.Module):
    def __init__(self, width: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.gain = nn.Parameter((torch.rand(width) + 0.5).to(torch.bfloat16))
        self.shift = nn.Parameter(torch.randn(width).to(torch.bfloat16))
        self.qkv, self.out = matrix(3 * width, width), matrix(width, width)
        self.up, self.down = matrix(hidden, width), matrix(width, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.layer_norm(x, self.gain.shape, self.gain, self.shift)
        q, k, v = F.linear(y, self.qkv).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        heard = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return x + F.linear(heard, self.out) + F.linear(F.gelu(F.linear(y, self.up)), self.down)


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
    weights = 4 * width * width + 2 * width * hidden
    pairs = batch * heads * sequence * (sequence + 1) // 2
    return {
        "bytes": (2 * tokens * width + weights + 2 * width) * element_bytes,
        "flops": 2 * tokens * weights + 4 * pairs * head_width,
    }
