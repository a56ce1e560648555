"""Causal attention whose keys and values are projected from one narrow latent, head by head, in bfloat16.

They are eight times as wide as the latent: make them tile by tile, or fold their matrices into the queries.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 4
sequence = 2048
heads = 16
head_width = 128
latent = 512
width = heads * head_width


def matrix(features_out: int, features_in: int) -> nn.Parameter:
    return nn.Parameter((torch.randn(features_out, features_in) / features_in**0.5).to(torch.bfloat16))


class Model(nn.Module):
    def __init__(self, width: int, heads: int, latent: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.out = matrix(width, width), matrix(width, width)
        self.compress = matrix(latent, width)
        self.key, self.value = matrix(width, latent), matrix(width, latent)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        small = F.linear(x, self.compress)
        q = F.linear(x, self.query).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = F.linear(small, self.key).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        v = F.linear(small, self.value).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.linear(y.transpose(1, 2).flatten(2), self.out)


def get_inputs():
    return [torch.randn(batch, sequence, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, heads, latent]


def cases():
    small = {"batch": 2, "heads": 4, "head_width": 32, "latent": 64}
    return [
        {"name": "aligned", "sizes": {**small, "sequence": 128}},
        {"name": "ragged", "sizes": {"batch": 3, "sequence": 83, "heads": 3, "head_width": 40, "latent": 53}},
        {"name": "strided", "sizes": {**small, "sequence": 64}, "layout": "strided"},
        {"name": "float32", "sizes": {**small, "sequence": 72}, "dtype": "float32"},
    ]


ABOUT = {"category": "attention", "regime": "compute"}


def cost(element_bytes=2):
    """x and weights read, y written; projections in and out, and attention over the lower triangle."""
    tokens = batch * sequence
    weights = 2 * width * width + 3 * width * latent
    pairs = batch * heads * sequence * (sequence + 1) // 2
    return {
        "bytes": (2 * tokens * width + weights) * element_bytes,
        "flops": 2 * tokens * (2 * width * width + width * latent) + 4 * pairs * min(head_width, latent),
    }
