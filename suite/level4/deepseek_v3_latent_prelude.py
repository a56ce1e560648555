"""DeepSeek V3, what stands before latent attention: queries through a narrow rank, keys and values too.

In bfloat16: two products on x, two RMSNorms, a wide product for 128 query heads, rotation of the small parts.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 4
sequence = 1024
width = 7168
heads = 128
query_rank = 1536
latent = 512
plain = 128
half = 32
rotary = 2 * half
eps = 1e-6


def matrix(features_out: int, features_in: int) -> nn.Parameter:
    return nn.Parameter((torch.randn(features_out, features_in) / features_in**0.5).to(torch.bfloat16))


def gain(features: int) -> nn.Parameter:
    return nn.Parameter((torch.rand(features) + 0.5).to(torch.bfloat16))


def rms_norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * gain


def rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


class Model(nn.Module):
    """Returns queries for each head, the normed latent, and the key part that all heads share."""

    def __init__(self, width: int, heads: int, query_rank: int, latent: int, plain: int, rotary: int) -> None:
        super().__init__()
        self.heads, self.plain, self.latent = heads, plain, latent
        self.query_down, self.query_gain = matrix(query_rank, width), gain(query_rank)
        self.query_up = matrix(heads * (plain + rotary), query_rank)
        self.compress, self.latent_gain = matrix(latent + rotary, width), gain(latent)

    def forward(
        self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        q = F.linear(rms_norm(F.linear(x, self.query_down), self.query_gain), self.query_up)
        q = q.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        turned = rotate(q[..., self.plain :], cosine, sine)
        small = F.linear(x, self.compress)
        shared = rotate(small[..., self.latent :], cosine, sine)
        normed = rms_norm(small[..., : self.latent], self.latent_gain)
        return torch.cat((q[..., : self.plain], turned), -1), normed, shared


def get_inputs():
    angles = torch.rand(sequence, half) * 6.2831853
    return [
        torch.randn(batch, sequence, width, dtype=torch.bfloat16),
        torch.cos(angles).to(torch.bfloat16),
        torch.sin(angles).to(torch.bfloat16),
    ]


def get_init_inputs():
    return [width, heads, query_rank, latent, plain, rotary]


def cases():
    small = {"batch": 2, "width": 256, "heads": 4, "query_rank": 96, "latent": 64, "plain": 32, "half": 8}
    odd = {"batch": 3, "width": 211, "heads": 5, "query_rank": 71, "latent": 53, "plain": 29, "half": 7}
    return [
        {"name": "aligned", "sizes": {**small, "sequence": 128}},
        {"name": "ragged", "sizes": {**odd, "sequence": 83}},
        {"name": "strided", "sizes": {**small, "sequence": 64}, "layout": "strided"},
        {"name": "float32", "sizes": {**small, "sequence": 56}, "dtype": "float32"},
    ]


ABOUT = {"category": "matmul", "regime": "compute"}


def cost(element_bytes=2):
    """x, angles and weights read, three results written; three products."""
    tokens = batch * sequence
    queries = heads * (plain + rotary)
    weights = width * (query_rank + latent + rotary) + query_rank * queries
    elements = tokens * (width + queries + latent + rotary) + 2 * sequence * half
    return {
        "bytes": (elements + weights + query_rank + latent) * element_bytes,
        "flops": 2 * tokens * weights,
    }
