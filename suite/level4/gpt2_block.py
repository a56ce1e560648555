"""GPT-2 small, one layer on 32 sequences of 1024: causal attention and an MLP with tanh GELU, bfloat16.

Narrow enough (768) that attention, norms and activation take as long as the products.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 32
sequence = 1024
heads = 12
head_width = 64
width = heads * head_width
hidden = 4 * width


def linear(features_in: int, features_out: int) -> nn.Linear:
    layer = nn.Linear(features_in, features_out, dtype=torch.bfloat16)
    nn.init.normal_(layer.weight, std=features_in**-0.5)
    nn.init.normal_(layer.bias)
    return layer


def norm(features: int) -> nn.LayerNorm:
    layer = nn.LayerNorm(features, dtype=torch.bfloat16)
    nn.init.uniform_(layer.weight, 0.5, 1.5)
    nn.init.normal_(layer.bias)
    return layer


class Model(nn.Module):
    def __init__(self, width: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = norm(width), norm(width)
        self.qkv, self.out = linear(width, 3 * width), linear(width, width)
        self.up, self.down = linear(width, hidden), linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


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
    matrices = 4 * width * width + 2 * width * hidden
    pairs = batch * heads * sequence * (sequence + 1) // 2
    return {
        "bytes": (2 * tokens * width + matrices + 9 * width + hidden) * element_bytes,
        "flops": 2 * tokens * matrices + 4 * pairs * head_width,
    }
