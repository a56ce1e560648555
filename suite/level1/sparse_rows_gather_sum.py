"""Weighted sums of rows gathered from a table, the same number for each result: a sparse matrix times a dense
one. Rows come from anywhere, and the gathered copy should never exist in memory."""

import torch
from torch import nn

table_rows = 131072
width = 256
results = 32768
picks = 16


class Model(nn.Module):
    def forward(self, table: torch.Tensor, places: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return (table[places] * weights.unsqueeze(-1)).sum(dim=1)


def get_inputs():
    return [
        torch.randn(table_rows, width),
        torch.randint(0, table_rows, (results, picks)),
        torch.randn(results, picks),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"table_rows": 512, "width": 128, "results": 128, "picks": 8}},
        {"name": "ragged", "sizes": {"table_rows": 499, "width": 97, "results": 131, "picks": 7}},
        {
            "name": "strided",
            "sizes": {"table_rows": 256, "width": 64, "results": 100, "picks": 4},
            "layout": "strided",
        },
        {
            "name": "bfloat16",
            "sizes": {"table_rows": 300, "width": 200, "results": 90, "picks": 5},
            "dtype": "bfloat16",
        },
    ]


ABOUT = {"category": "sparse", "regime": "memory"}


def cost(element_bytes=4):
    """8-byte places and weights read, sums written, and each row of the table that occurs read once.

    How many occur follows from chance: places are uniform, so the expected share is 1 - (1 - 1/n)^lookups.
    """
    lookups = results * picks
    touched = int(table_rows * (1 - (1 - 1 / table_rows) ** lookups))
    return {
        "bytes": ((touched + results) * width + lookups) * element_bytes + lookups * 8,
        "flops": 2 * lookups * width,
    }
