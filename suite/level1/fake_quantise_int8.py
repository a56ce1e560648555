"""Round float32 values to the int8 grid of their channel and back, as training that prepares for int8 does:
elementwise, with a scale for each column that some values exceed and are clipped by."""

import torch
from torch import nn

rows = 8192
cols = 4096


class Model(nn.Module):
    def __init__(self, cols: int) -> None:
        super().__init__()
        # Measured beforehand, not trained: a buffer. Three standard deviations or so fit into 127 steps.
        self.register_buffer("scale", (torch.rand(cols) + 0.5) * 2 / 127)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.round(x / self.scale).clamp(-128, 127) * self.scale


def get_inputs():
    return [torch.randn(rows, cols) * (torch.rand(rows, 1) * 1.5 + 0.1)]


def get_init_inputs():
    return [cols]


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 2048}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "mixture", "sizes": {"rows": 64, "cols": 1000}, "distribution": "mixture"},
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=4):
    """x read, y written, the scales read once."""
    return {"bytes": (2 * rows * cols + cols) * element_bytes, "flops": 3 * rows * cols}
