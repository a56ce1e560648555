"""Qwen2 7B, what stands before attention: RMSNorm, projections with bias to 28 and 4 heads, rotary, bfloat16.

One product with three results, two of them rotated, all delivered by heads: an epilogue worth writing.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 8
sequence = 2048
kv_heads = 4
group = 7
half = 64
heads = kv_heads * group
head_width = 2 * half
width = heads * head_width
eps = 1e-6


def matrix(features_out: int, features_in: int) -> nn.Parameter:
    return nn.Parameter((torch.randn(features_out, features_in) / features_in**0.5).to(torch.bfloat16))


def vector(features: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(features).to(torch.bfloat16))


def rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


class Model(nn.Module):
    """Returns queries, keys and values as (batch, heads, sequence, head_width)."""

    def __init__(self, heads: int, kv_heads: int, head_width: int) -> None:
        super().__init__()
        self.heads, self.kv_heads = heads, kv_heads
        width, narrow = heads * head_width, kv_heads * head_width
        self.gain = nn.Parameter((torch.rand(width) + 0.5).to(torch.bfloat16))
        self.q, self.q_bias = matrix(width, width), vector(width)
        self.k, self.k_bias = matrix(narrow, width), vector(narrow)
        self.v, self.v_bias = matrix(narrow, width), vector(narrow)

    def forward(
        self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        y = (wide * scale).to(x.dtype) * self.gain
        q = F.linear(y, self.q, self.q_bias).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = F.linear(y, self.k, self.k_bias).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2)
        v = F.linear(y, self.v, self.v_bias).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2)
        return rotate(q, cosine, sine), rotate(k, cosine, sine), v


def get_inputs():
    angles = torch.rand(sequence, half) * 6.2831853
    return [
        torch.randn(batch, sequence, width, dtype=torch.bfloat16),
        torch.cos(angles).to(torch.bfloat16),
        torch.sin(angles).to(torch.bfloat16),
    ]


def get_init_inputs():
    return [heads, kv_heads, head_width]


def cases():
    small = {"batch": 2, "kv_heads": 2, "group": 4, "half": 16}
    odd = {"batch": 3, "kv_heads": 3, "group": 2, "half": 17}
    return [
        {"name": "aligned", "sizes": {**small, "sequence": 128}},
        {"name": "ragged", "sizes": {**odd, "sequence": 83}},
        {"name": "strided", "sizes": {**small, "sequence": 64}, "layout": "strided"},
        {"name": "float32", "sizes": {**small, "sequence": 56}, "dtype": "float32"},
    ]


ABOUT = {"category": "matmul", "regime": "compute"}


def cost(element_bytes=2):
    """x, angles and weights read, three results written; their products."""
    tokens = batch * sequence
    made = (heads + 2 * kv_heads) * head_width
    elements = tokens * (width + made) + 2 * sequence * half + (width + 1) * made + width
    return {"bytes": elements * element_bytes, "flops": 2 * tokens * width * made}
