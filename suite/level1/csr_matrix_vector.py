"""A sparse matrix with the same number of entries in every row times a dense vector: values and column
numbers stream through once, the vector is read at random places and should stay in the cache."""

import torch
from torch import nn

rows = 524288
cols = 262144
entries = 48


class Model(nn.Module):
    def forward(self, values: torch.Tensor, columns: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (values * x[columns]).sum(dim=-1)


def get_inputs():
    return [
        torch.randn(rows, entries),
        torch.randint(0, cols, (rows, entries), dtype=torch.int32),
        torch.randn(cols),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 1024, "cols": 512, "entries": 32}},
        {"name": "ragged", "sizes": {"rows": 997, "cols": 331, "entries": 37}},
        {"name": "strided", "sizes": {"rows": 512, "cols": 256, "entries": 16}, "layout": "strided"},
        {"name": "float16", "sizes": {"rows": 600, "cols": 700, "entries": 48}, "dtype": "float16"},
    ]


ABOUT = {"category": "sparse", "regime": "memory"}


def cost(element_bytes=4):
    """Values and 4-byte columns read once, the vector's elements that occur read once, the sums written.

    Columns are uniform, so the expected share of the vector that occurs is 1 - (1 - 1/n)^lookups.
    """
    touched = int(cols * (1 - (1 - 1 / cols) ** (rows * entries)))
    return {
        "bytes": rows * entries * (element_bytes + 4) + (touched + rows) * element_bytes,
        "flops": 2 * rows * entries,
    }
