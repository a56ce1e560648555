"""Quantise rows of a weight to -1, 0 and 1 around their mean magnitude: a sum over each row decides where the
two thresholds lie, so elements near them depend on the precision of that sum."""

import torch
from torch import nn

rows = 8192
cols = 4096


class Model(nn.Module):
    """Returns the signs and a float32 scale for each row."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        wide = x.float()
        scale = wide.abs().mean(dim=-1, keepdim=True).clamp(min=1e-12)
        signs = torch.round(wide / scale).clamp(-1, 1)
        return signs.to(torch.int8), scale.squeeze(-1)


def get_inputs():
    return [torch.randn(rows, cols) * (torch.rand(rows, 1) * 9.9 + 0.1)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 2048}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "bfloat16", "sizes": {"rows": 64, "cols": 1000}, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=4):
    """x read, one byte written for each element and a 4-byte scale for each row."""
    return {"bytes": rows * cols * (element_bytes + 1) + rows * 4, "flops": 3 * rows * cols}
