"""The least and the largest element of each float16 row: two outputs that one pass can serve."""

import torch
from torch import nn

rows = 16384
cols = 8192


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.amin(dim=-1), x.amax(dim=-1)


def get_inputs():
    scales = torch.rand(rows, 1, dtype=torch.float16) + 0.5
    return [torch.randn(rows, cols, dtype=torch.float16) * scales]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "cols": 2048}},
        {"name": "ragged", "sizes": {"rows": 131, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 128, "cols": 512}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 100, "cols": 1000}, "dtype": "float32"},
    ]


ABOUT = {"category": "reduction", "regime": "memory"}


def cost(element_bytes=2):
    """Each element read once and compared twice, two numbers written for each row."""
    return {"bytes": (rows * cols + 2 * rows) * element_bytes, "flops": 2 * rows * cols}
