"""Llama 3 8B, one token of 32 sequences: projections, rotation, attention over 4096 cached positions, output.

In bfloat16. Eight heads of keys serve 32 of queries; reading the cache once is nearly all the time there is.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 32
context = 4096
kv_heads = 8
group = 4
half = 64
heads = kv_heads * group
head_width = 2 * half
width = heads * head_width


def matrix(features_out: int, features_in: int) -> nn.Parameter:
    return nn.Parameter((torch.randn(features_out, features_in) / features_in**0.5).to(torch.bfloat16))


def rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


class Model(nn.Module):
    def __init__(self, heads: int, kv_heads: int, head_width: int) -> None:
        super().__init__()
        self.heads, self.kv_heads = heads, kv_heads
        width = heads * head_width
        self.q, self.out = matrix(width, width), matrix(width, width)
        self.k, self.v = matrix(kv_heads * head_width, width), matrix(kv_heads * head_width, width)

    def forward(
        self,
        x: torch.Tensor,
        cosine: torch.Tensor,
        sine: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
    ) -> torch.Tensor:
        cosine, sine = cosine.unsqueeze(1), sine.unsqueeze(1)
        q = rotate(F.linear(x, self.q).unflatten(-1, (self.heads, -1)), cosine, sine)
        k = rotate(F.linear(x, self.k).unflatten(-1, (self.kv_heads, -1)), cosine, sine)
        v = F.linear(x, self.v).unflatten(-1, (self.kv_heads, -1))
        keys = torch.cat((keys, k.unsqueeze(2)), 2)
        values = torch.cat((values, v.unsqueeze(2)), 2)
        y = F.scaled_dot_product_attention(q.unsqueeze(2), keys, values, enable_gqa=True)
        return F.linear(y.flatten(1), self.out)


def get_inputs():
    angles = torch.rand(batch, half) * 6.2831853
    return [
        torch.randn(batch, width, dtype=torch.bfloat16),
        torch.cos(angles).to(torch.bfloat16),
        torch.sin(angles).to(torch.bfloat16),
        torch.randn(batch, kv_heads, context, head_width, dtype=torch.bfloat16),
        torch.randn(batch, kv_heads, context, head_width, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return [heads, kv_heads, head_width]


def cases():
    small = {"batch": 8, "kv_heads": 2, "group": 4, "half": 16}
    odd = {"batch": 7, "kv_heads": 3, "group": 3, "half": 13}
    return [
        {"name": "aligned", "sizes": {**small, "context": 128}},
        {"name": "ragged", "sizes": {**odd, "context": 101}},
        {"name": "strided", "sizes": {**small, "context": 64}, "layout": "strided"},
        {"name": "float32", "sizes": {**small, "batch": 4, "context": 96}, "dtype": "float32"},
    ]


ABOUT = {"category": "attention", "regime": "memory"}


def cost(element_bytes=2):
    """Cache, weights, x and angles read, y written; four products and attention of one row for each head."""
    weights = 2 * width * width + 2 * width * kv_heads * head_width
    cache = 2 * batch * kv_heads * context * head_width
    elements = cache + weights + 2 * batch * width + 2 * batch * half
    return {
        "bytes": elements * element_bytes,
        "flops": 2 * batch * weights + 4 * batch * heads * (context + 1) * head_width,
    }
