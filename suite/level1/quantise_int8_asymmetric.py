"""Quantise rows to unsigned 8-bit codes with a scale and a zero point each, so that lopsided rows use the
whole range: two extremes per row, and codes that shift together if the zero point is off by one."""

import torch
from torch import nn

rows = 8192
cols = 8192
levels = 255


class Model(nn.Module):
    """Returns codes, scales and zero points: (codes - zero) * scale is about x, and zero is exact."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        wide = x.float()
        low = wide.amin(dim=-1, keepdim=True).clamp(max=0.0)
        high = wide.amax(dim=-1, keepdim=True).clamp(min=0.0)
        scale = (high - low).clamp(min=1e-12) / levels
        zero = torch.round(-low / scale).clamp(0, levels)
        codes = (torch.round(wide / scale) + zero).clamp(0, levels)
        return codes.to(torch.uint8), scale.squeeze(-1), zero.squeeze(-1).to(torch.uint8)


def get_inputs():
    x = torch.randn(rows, cols) + torch.randn(rows, 1)
    return [x * (torch.rand(rows, 1) * 9.9 + 0.1)]


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
    """x read, one byte written for each element, a 4-byte scale and a 1-byte zero point for each row."""
    return {"bytes": rows * cols * (element_bytes + 1) + rows * 5, "flops": 4 * rows * cols}
