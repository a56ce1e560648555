"""Quantise float32 activations to int8 with a scale for each row: a row maximum, then a division and a
rounding, all in one read if the row stays on the chip."""

import torch
from torch import nn

rows = 8192
cols = 8192
limit = 127


class Model(nn.Module):
    """Returns the codes and a float32 scale for each row."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        wide = x.float()
        scale = wide.abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / limit
        codes = torch.round(wide / scale).clamp(-limit, limit)
        return codes.to(torch.int8), scale.squeeze(-1)


def get_inputs():
    factors = torch.rand(rows, 1) * 9.9 + 0.1
    return [torch.randn(rows, cols) * factors]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 2048}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "mixture", "sizes": {"rows": 64, "cols": 1000}, "distribution": "mixture"},
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=4):
    """x read, one byte written for each element and a 4-byte scale for each row."""
    return {"bytes": rows * cols * (element_bytes + 1) + rows * 4, "flops": 3 * rows * cols}
