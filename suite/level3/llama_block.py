"""A decoder block with RMSNorm, rotary positions, grouped key and value heads and a SwiGLU MLP, in bfloat16.

The angles are inputs. Projections, rotation and attention can be joined, and so can gate, product and sum.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 8
sequence = 2048
kv_heads = 4
group = 4
half = 64
hidden = 5632
heads = kv_heads * group
head_width = 2 * half
width = heads * head_width
eps = 1e-5


def matrix(features_out: int, features_in: int) -> nn.Parameter:
    return nn.Parameter((torch.randn(features_out, features_in) / features_in**0.5).to(torch.bfloat16))


def rms_norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * gain


def rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


class Model(nn.Module):
    def __init__(self, heads: int, kv_heads: int, head_width: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.kv_heads = heads, kv_heads
        width = heads * head_width
        self.gain1 = nn.Parameter((torch.rand(width) + 0.5).to(torch.bfloat16))
        self.gain2 = nn.Parameter((torch.rand(width) + 0.5).to(torch.bfloat16))
        # Scores of about two: attention has to choose, or the residual would hide what it does.
        self.q = nn.Parameter(2 * matrix(width, width).detach())
        self.out = matrix(width, width)
        self.k, self.v = matrix(kv_heads * head_width, width), matrix(kv_heads * head_width, width)
        self.gate, self.up = matrix(hidden, width), matrix(hidden, width)
        self.down = matrix(width, hidden)

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        y = rms_norm(x, self.gain1)
        q = F.linear(y, self.q).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = F.linear(y, self.k).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2)
        v = F.linear(y, self.v).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2)
        q, k = rotate(q, cosine, sine), rotate(k, cosine, sine)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + F.linear(y.transpose(1, 2).flatten(2), self.out)
        y = rms_norm(x, self.gain2)
        return x + F.linear(F.silu(F.linear(y, self.gate)) * F.linear(y, self.up), self.down)


def get_inputs():
    angles = torch.rand(sequence, half) * 6.2831853
    return [
        torch.randn(batch, sequence, width, dtype=torch.bfloat16),
        torch.cos(angles).to(torch.bfloat16),
        torch.sin(angles).to(torch.bfloat16),
    ]


def get_init_inputs():
    return [heads, kv_heads, head_width, hidden]


def cases():
    small = {"batch": 2, "kv_heads": 2, "group": 2, "hidden": 320}
    return [
        {"name": "aligned", "sizes": {**small, "sequence": 64, "half": 32, "hidden": 512}},
        {"name": "ragged", "sizes": {**small, "batch": 3, "sequence": 53, "group": 3, "half": 20}},
        {"name": "strided", "sizes": {**small, "sequence": 64, "half": 16}, "layout": "strided"},
        {"name": "float32", "sizes": {**small, "sequence": 40, "half": 32}, "dtype": "float32"},
    ]


ABOUT = {"category": "attention", "regime": "compute"}


def cost(element_bytes=2):
    """x, the angles and the weights read, y written; seven products, and the lower triangle of attention."""
    tokens = batch * sequence
    weights = 2 * width * width + 2 * width * kv_heads * head_width + 3 * width * hidden
    pairs = batch * heads * sequence * (sequence + 1) // 2
    elements = 2 * tokens * width + 2 * sequence * half + weights + 2 * width
    return {
        "bytes": elements * element_bytes,
        "flops": 2 * tokens * weights + 4 * pairs * head_width,
    }
