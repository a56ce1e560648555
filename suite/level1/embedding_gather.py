"""Rows of a bfloat16 table looked up by random tokens: whole rows copied from places found at run time."""

import torch
from torch import nn

lookups = 32768
table_rows = 131072
width = 1024


class Model(nn.Module):
    def forward(self, tokens: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return nn.functional.embedding(tokens, table)


def get_inputs():
    return [
        torch.randint(0, table_rows, (lookups,)),
        torch.randn(table_rows, width, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"lookups": 256, "table_rows": 512, "width": 128}},
        {"name": "ragged", "sizes": {"lookups": 331, "table_rows": 499, "width": 97}},
        {
            "name": "strided",
            "sizes": {"lookups": 128, "table_rows": 256, "width": 64},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"lookups": 200, "table_rows": 300, "width": 100},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "index", "regime": "memory"}


def cost(element_bytes=2):
    """8-byte tokens read, rows written, and each row of the table that occurs read once.

    How many occur follows from chance: tokens are uniform.
    """
    occurring = int(table_rows * (1 - (1 - 1 / table_rows) ** lookups))
    return {"bytes": lookups * 8 + (lookups + occurring) * width * element_bytes, "flops": 0}
