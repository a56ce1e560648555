"""RMSNorm of bfloat16 rows, then int8 codes with a scale for each row: two reductions over a row, the second
over results of the first, and no need to write the normalised row in between."""

import torch
from torch import nn

rows = 8192
width = 8192
eps = 1e-5
limit = 127


class Model(nn.Module):
    """Returns the codes and a float32 scale for each row."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter((torch.rand(width) + 0.5).to(torch.bfloat16))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps) * self.weight.float()
        scale = wide.abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / limit
        codes = torch.round(wide / scale).clamp(-limit, limit)
        return codes.to(torch.int8), scale.squeeze(-1)


def get_inputs():
    factors = torch.rand(rows, 1, dtype=torch.bfloat16) * 9.9 + 0.1
    return [torch.randn(rows, width, dtype=torch.bfloat16) * factors]


def get_init_inputs():
    return [width]


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "width": 2048}},
        {"name": "ragged", "sizes": {"rows": 37, "width": 997}},
        {"name": "strided", "sizes": {"rows": 64, "width": 512}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 64, "width": 1000}, "dtype": "float32"},
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=2):
    """x and weight read, a byte written for each element and a 4-byte scale for each row."""
    return {
        "bytes": rows * width * (element_bytes + 1) + width * element_bytes + rows * 4,
        "flops": 6 * rows * width,
    }
