"""A product of two matrices of which only some entries are wanted: for each row a few columns are named, and
each entry is a dot product times the sparse matrix's own value. Gathered rows, short reductions."""

import torch
from torch import nn

rows = 32768
cols = 32768
samples = 16
depth = 512


class Model(nn.Module):
    """Entry (i, j) is values[i, j] times the product of left[i] and right[columns[i, j]]."""

    def forward(
        self, left: torch.Tensor, right: torch.Tensor, columns: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        return (right[columns] @ left.unsqueeze(-1)).squeeze(-1) * values


def get_inputs():
    return [
        torch.randn(rows, depth),
        torch.randn(cols, depth),
        torch.randint(0, cols, (rows, samples)),
        torch.rand(rows, samples) + 0.5,
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 256, "cols": 256, "samples": 16, "depth": 128}},
        {"name": "ragged", "sizes": {"rows": 131, "cols": 97, "samples": 7, "depth": 197}},
        {
            "name": "strided",
            "sizes": {"rows": 128, "cols": 200, "samples": 8, "depth": 64},
            "layout": "strided",
        },
        {
            "name": "bfloat16",
            "sizes": {"rows": 200, "cols": 100, "samples": 9, "depth": 128},
            "dtype": "bfloat16",
        },
    ]


ABOUT = {"category": "sparse", "regime": "memory"}


def cost(element_bytes=4):
    """Left, values, 8-byte columns and each row of the right that occurs read once; entries written.

    How many occur follows from chance: columns are uniform, so the expected share is 1 - (1 - 1/n)^entries.
    """
    entries = rows * samples
    touched = int(cols * (1 - (1 - 1 / cols) ** entries))
    return {
        "bytes": ((rows + touched) * depth + 2 * entries) * element_bytes + entries * 8,
        "flops": 2 * entries * depth,
    }
