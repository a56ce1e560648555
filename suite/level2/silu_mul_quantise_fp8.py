"""The gate of a SwiGLU layer, silu(gate) * up, written as 8-bit floats with a scale for each row: the maximum
is over results that exist only on the chip. The codes come back as bytes, to be compared bit by bit."""

import torch
from torch import nn

tokens = 8192
width = 8192
largest = 448


class Model(nn.Module):
    """Gate and up lie side by side in a row; returns the bytes and a float32 scale for each row."""

    def forward(self, gate_up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gate, up = gate_up.float().chunk(2, dim=-1)
        wide = nn.functional.silu(gate) * up
        scale = wide.abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / largest
        narrow = (wide / scale).clamp(-largest, largest).to(torch.float8_e4m3fn)
        return narrow.view(torch.uint8), scale.squeeze(-1)


def get_inputs():
    factors = torch.rand(tokens, 1, dtype=torch.bfloat16) * 2.9 + 0.1
    return [torch.randn(tokens, 2 * width, dtype=torch.bfloat16) * factors]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"tokens": 64, "width": 2048}},
        {"name": "ragged", "sizes": {"tokens": 37, "width": 997}},
        {"name": "strided", "sizes": {"tokens": 64, "width": 512}, "layout": "strided"},
        {"name": "float32", "sizes": {"tokens": 64, "width": 1000}, "dtype": "float32"},
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=2):
    """Two numbers read and one byte written for each element; a 4-byte scale for each row."""
    return {
        "bytes": tokens * width * (2 * element_bytes + 1) + tokens * 4,
        "flops": 7 * tokens * width,
    }
