"""Where each float32 row is largest: value and place travel together through the reduction."""

import torch
from torch import nn

rows = 4096
cols = 32768


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.argmax(dim=-1)


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "cols": 1024}},
        {"name": "ragged", "sizes": {"rows": 127, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 128, "cols": 512}, "layout": "strided"},
        {"name": "transposed", "sizes": {"rows": 200, "cols": 300}, "layout": "transposed"},
    ]


ABOUT = {"category": "reduction", "regime": "memory"}


def cost(element_bytes=4):
    """Each element read and compared once, an 8-byte place written for each row."""
    return {"bytes": rows * cols * element_bytes + rows * 8, "flops": rows * cols}
