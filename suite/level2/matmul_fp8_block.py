"""A product of 8-bit floats with a power of two for every 128 elements of a row on the left and for each tile
of 128 by 128 on the right, so that partial sums are scaled block by block, then a softplus. It keeps results
away from zero, where the few bits that 8-bit tensor cores add with would show."""

import math

import torch
from torch import nn

rows = 4096
col_blocks = 32
depth_blocks = 32
block = 128
bias = 127


class Model(nn.Module):
    """The weight has a row for each output column; a byte e stands for the scale 2^(e - 127)."""

    def forward(
        self, x: torch.Tensor, weight: torch.Tensor, x_exponent: torch.Tensor, weight_exponent: torch.Tensor
    ) -> torch.Tensor:
        x_scale = torch.exp2(x_exponent.float() - bias)
        weight_scale = torch.exp2(weight_exponent.float() - bias).repeat_interleave(block, dim=0)
        left = x.float() * x_scale.repeat_interleave(block, dim=1)
        right = weight.float() * weight_scale.repeat_interleave(block, dim=1)
        return nn.functional.softplus(left @ right.T).to(torch.bfloat16)


def get_inputs():
    depth = depth_blocks * block
    small = bias - round(math.log2(depth) / 2)  # sums of any depth come out about one
    return [
        torch.randn(rows, depth, dtype=torch.bfloat16).to(torch.float8_e4m3fn),
        torch.randn(col_blocks * block, depth, dtype=torch.bfloat16).to(torch.float8_e4m3fn),
        torch.randint(bias - 2, bias + 2, (rows, depth_blocks), dtype=torch.uint8),
        torch.randint(small - 2, small + 2, (col_blocks, depth_blocks), dtype=torch.uint8),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "col_blocks": 2, "depth_blocks": 2}},
        {"name": "ragged", "sizes": {"rows": 67, "col_blocks": 1, "depth_blocks": 3}},
        {
            "name": "strided",
            "sizes": {"rows": 64, "col_blocks": 2, "depth_blocks": 1},
            "layout": "strided",
        },
    ]


ABOUT = {"category": "quantisation", "regime": "compute"}


def cost():
    """A byte for each operand and each scale, two for each result; a product and a sum for each term."""
    cols, depth = col_blocks * block, depth_blocks * block
    scales = (rows + col_blocks) * depth_blocks
    return {
        "bytes": (rows + cols) * depth + scales + 2 * rows * cols,
        "flops": 2 * rows * cols * depth,
    }
