"""Turn int8 rows back into bfloat16 with a scale for each row: one byte in, two bytes out, nothing to wait
for, so only the width of loads and stores decides."""

import torch
from torch import nn

rows = 8192
cols = 16384


class Model(nn.Module):
    def forward(self, codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return codes.to(scale.dtype) * scale.unsqueeze(-1)


def get_inputs():
    return [
        torch.randint(-127, 128, (rows, cols), dtype=torch.int8),
        torch.rand(rows, dtype=torch.bfloat16) * 9.9 + 0.1,
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 4096}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 64, "cols": 1000}, "dtype": "float32"},
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=2):
    """One byte read and one number written for each element; the scales read once."""
    return {"bytes": rows * cols * (1 + element_bytes) + rows * element_bytes, "flops": rows * cols}
