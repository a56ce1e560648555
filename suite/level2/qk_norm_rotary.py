"""RMS norm of each query and key head, then rotary embedding: short rows, two tensors, one pass."""

import torch
from torch import nn

batch = 8
heads = 16
sequence = 4096
half = 64
eps = 1e-6


class Model(nn.Module):
    def __init__(self, half: int) -> None:
        super().__init__()
        self.q_weight = nn.Parameter((torch.rand(2 * half) + 0.5).to(torch.bfloat16))
        self.k_weight = nn.Parameter((torch.rand(2 * half) + 0.5).to(torch.bfloat16))

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        q, k = normalise(q, self.q_weight), normalise(k, self.k_weight)
        return rotate(q, cosine, sine), rotate(k, cosine, sine)


def normalise(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.float()).to(x.dtype)


def rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def get_inputs():
    angles = torch.rand(sequence, half) * 6.2831853
    return [
        torch.randn(batch, heads, sequence, 2 * half, dtype=torch.bfloat16) * 2,
        torch.randn(batch, heads, sequence, 2 * half, dtype=torch.bfloat16) * 2,
        torch.cos(angles).to(torch.bfloat16),
        torch.sin(angles).to(torch.bfloat16),
    ]


def get_init_inputs():
    return [half]


def cases():
    aligned = {"batch": 2, "heads": 4, "sequence": 64, "half": 32}
    ragged = {"batch": 3, "heads": 3, "sequence": 53, "half": 23}
    strided = {"batch": 2, "heads": 3, "sequence": 48, "half": 40}
    return [
        {"name": "aligned", "sizes": aligned},
        {"name": "ragged", "sizes": ragged},
        {"name": "strided", "sizes": strided, "layout": "strided"},
        {"name": "float32", "sizes": aligned, "dtype": "float32"},
    ]


ABOUT = {"category": "norm", "regime": "memory"}


def cost(element_bytes=2):
    """Queries and keys read and written, tables and gains read; about seven operations an element."""
    elements = 2 * batch * heads * sequence * 2 * half
    read_once = 2 * sequence * half + 4 * half
    return {"bytes": (2 * elements + read_once) * element_bytes, "flops": 7 * elements}
