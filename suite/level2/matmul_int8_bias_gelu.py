"""An int8 linear layer with its epilogue: exact integer sums, scales for rows and columns, a bias and a GELU.
Everything after the sums happens on numbers that are still in registers."""

import torch
from torch import nn

rows = 4096
cols = 8192
depth = 2048


class Model(nn.Module):
    def forward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        x_scale: torch.Tensor,
        weight_scale: torch.Tensor,
        bias: torch.Tensor,
    ) -> torch.Tensor:
        sums = x.float() @ weight.float().T
        scaled = sums * x_scale.unsqueeze(-1).float() * weight_scale.float()
        return nn.functional.gelu(scaled + bias.float()).to(bias.dtype)


def get_inputs():
    return [
        torch.randint(-127, 128, (rows, depth), dtype=torch.int8),
        torch.randint(-127, 128, (cols, depth), dtype=torch.int8),
        (torch.rand(rows) * 3.9 + 0.1) / (73 * depth**0.5),
        (torch.rand(cols) + 0.1) / 73,
        torch.randn(cols),
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
    """Codes, scales and bias read, the result written; integer sums are no floating-point operations."""
    floats = rows * cols + rows + 2 * cols
    return {"bytes": (rows + cols) * depth + floats * element_bytes, "flops": 8 * rows * cols}
