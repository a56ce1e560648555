"""Divide bfloat16 activations by a factor for each channel, which evens out channels of very different size,
then quantise each row to int8: column factors and row maxima in one pass."""

import torch
from torch import nn

rows = 8192
width = 8192
limit = 127


class Model(nn.Module):
    """Returns the codes and a float32 scale for each row."""

    def __init__(self, width: int) -> None:
        super().__init__()
        # Measured beforehand, not trained, and never zero: a buffer.
        self.register_buffer("factor", torch.rand(width) * 1.5 + 0.5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        wide = x.float() / self.factor.float()
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
    """x read, a byte written for each element, a 4-byte scale for each row; the factors read once."""
    return {
        "bytes": rows * width * (element_bytes + 1) + width * element_bytes + rows * 4,
        "flops": 4 * rows * width,
    }
