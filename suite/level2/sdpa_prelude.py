"""What comes before attention: one projection to queries, keys and values, two of them rotated."""

import torch
from torch import nn

batch = 4
sequence = 2048
width = 2048
heads = 16
half = 64


class Model(nn.Module):
    def __init__(self, width: int, heads: int, half: int) -> None:
        super().__init__()
        self.heads = heads
        weight = torch.randn(3 * heads * 2 * half, width) / width**0.5
        self.weight = nn.Parameter(weight.to(torch.bfloat16))

    def forward(
        self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        q, k, v = nn.functional.linear(x, self.weight).chunk(3, dim=-1)
        return rotate(self.split(q), cosine, sine), rotate(self.split(k), cosine, sine), self.split(v)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def get_inputs():
    angles = torch.rand(sequence, half) * 6.2831853
    return [
        torch.randn(batch, sequence, width, dtype=torch.bfloat16),
        torch.cos(angles).to(torch.bfloat16),
        torch.sin(angles).to(torch.bfloat16),
    ]


def get_init_inputs():
    return [width, heads, half]


def cases():
    aligned = {"batch": 2, "sequence": 64, "width": 256, "heads": 4, "half": 16}
    ragged = {"batch": 3, "sequence": 53, "width": 131, "heads": 3, "half": 11}
    strided = {"batch": 2, "sequence": 48, "width": 160, "heads": 5, "half": 12}
    return [
        {"name": "aligned", "sizes": aligned},
        {"name": "ragged", "sizes": ragged},
        {"name": "strided", "sizes": strided, "layout": "strided"},
        {"name": "float32", "sizes": aligned, "dtype": "float32"},
    ]


ABOUT = {"category": "matmul", "regime": "compute"}


def cost(element_bytes=2):
    """x, weight and tables read, three tensors written; the product, three operations a rotated element."""
    rows, features = batch * sequence, heads * 2 * half
    elements = rows * width + 3 * features * width + 2 * sequence * half + 3 * rows * features
    flops = 6 * rows * width * features + 6 * rows * features
    return {"bytes": elements * element_bytes, "flops": flops}
