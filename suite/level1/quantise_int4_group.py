"""Quantise float32 rows to 4 bits in groups of 128, two codes packed into a byte (the even element in the low
half): a reduction over short groups, then neighbouring elements have to meet in one byte."""

import torch
from torch import nn

rows = 8192
groups = 64
group = 128
limit = 7


class Model(nn.Module):
    """Returns bytes and a float32 scale for each group; a code is the number plus eight."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        wide = x.float().unflatten(-1, (x.shape[-1] // group, group))
        scale = wide.abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / limit
        numbers = torch.round(wide / scale).clamp(-limit, limit)
        codes = (numbers + 8).to(torch.uint8).flatten(-2)
        return codes[..., 0::2] | (codes[..., 1::2] << 4), scale.squeeze(-1)


def get_inputs():
    factors = torch.rand(rows, groups) * 9.9 + 0.1
    x = torch.randn(rows, groups, group) * factors.unsqueeze(-1)
    return [x.flatten(-2)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "groups": 16}},
        {"name": "ragged", "sizes": {"rows": 37, "groups": 7}},
        {"name": "strided", "sizes": {"rows": 64, "groups": 8}, "layout": "strided"},
        {"name": "mixture", "sizes": {"rows": 64, "groups": 5}, "distribution": "mixture"},
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=4):
    """x read, half a byte written for each element and a 4-byte scale for each group."""
    elements = rows * groups * group
    return {"bytes": elements * element_bytes + elements // 2 + rows * groups * 4, "flops": 3 * elements}
