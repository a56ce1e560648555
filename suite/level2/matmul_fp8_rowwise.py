"""A gate of 8-bit floats: a product with a power of two for each row of the left side and each output column,
then a sigmoid. It keeps results away from zero, where the few bits that 8-bit tensor cores add with would
show, and it belongs into the epilogue."""

import math

import torch
from torch import nn

rows = 8192
cols = 4096
depth = 4096
bias = 127


class Model(nn.Module):
    """The weight has a row for each output column; a byte e stands for the scale 2^(e - 127)."""

    def forward(
        self, x: torch.Tensor, weight: torch.Tensor, x_exponent: torch.Tensor, weight_exponent: torch.Tensor
    ) -> torch.Tensor:
        sums = x.float() @ weight.float().T
        exponent = x_exponent.float().unsqueeze(-1) + weight_exponent.float() - 2 * bias
        return torch.sigmoid(sums * torch.exp2(exponent)).to(torch.bfloat16)


def get_inputs():
    small = bias - round(math.log2(depth) / 2)  # sums of any depth come out about one
    return [
        torch.randn(rows, depth, dtype=torch.bfloat16).to(torch.float8_e4m3fn),
        torch.randn(cols, depth, dtype=torch.bfloat16).to(torch.float8_e4m3fn),
        torch.randint(bias - 1, bias + 2, (rows,), dtype=torch.uint8),
        torch.randint(small - 1, small + 2, (cols,), dtype=torch.uint8),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "cols": 128, "depth": 256}},
        {"name": "ragged", "sizes": {"rows": 67, "cols": 97, "depth": 131}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 96, "depth": 128}, "layout": "strided"},
    ]


ABOUT = {"category": "quantisation", "regime": "compute"}


def cost():
    """A byte for each operand and each scale, two for each result; a product and a sum for each term."""
    return {
        "bytes": (rows + cols) * depth + rows + cols + 2 * rows * cols,
        "flops": 2 * rows * cols * depth,
    }
