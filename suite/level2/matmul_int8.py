"""Product of two int8 matrices with exact integer sums, then a scale for each row and each column: the
integer tensor cores' home ground. The specification adds in float32, which holds these sums exactly."""

import torch
from torch import nn

rows = 4096
cols = 4096
depth = 4096


class Model(nn.Module):
    """The weight has a row for each output column."""

    def forward(
        self, x: torch.Tensor, weight: torch.Tensor, x_scale: torch.Tensor, weight_scale: torch.Tensor
    ) -> torch.Tensor:
        sums = x.float() @ weight.float().T
        return (sums * x_scale.unsqueeze(-1).float() * weight_scale.float()).to(x_scale.dtype)


def get_inputs():
    return [
        torch.randint(-127, 128, (rows, depth), dtype=torch.int8),
        torch.randint(-127, 128, (cols, depth), dtype=torch.int8),
        (torch.rand(rows) * 9.9 + 0.1) / 127,
        (torch.rand(cols) * 9.9 + 0.1) / 127,
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "cols": 128, "depth": 256}},
        {"name": "ragged", "sizes": {"rows": 67, "cols": 97, "depth": 131}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 96, "depth": 128}, "layout": "strided"},
        {"name": "bfloat16", "sizes": {"rows": 64, "cols": 96, "depth": 200}, "dtype": "bfloat16"},
    ]


ABOUT = {"category": "quantisation", "regime": "compute"}


def cost(element_bytes=4):
    """Codes and scales read, the product written; integer sums are no floating-point operations."""
    floats = rows * cols + rows + cols
    return {"bytes": (rows + cols) * depth + floats * element_bytes, "flops": 2 * rows * cols}
