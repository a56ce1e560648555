"""Means of 32 random rows of a float32 table for each of 32768 bags: gathered and added, never stored."""

import torch
from torch import nn

table_rows = 262144
width = 128
bags = 32768
bag_size = 32


class Model(nn.Module):
    def forward(self, places: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return nn.functional.embedding_bag(places, table, mode="mean")


def get_inputs():
    return [torch.randint(0, table_rows, (bags, bag_size)), torch.randn(table_rows, width)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"table_rows": 512, "width": 128, "bags": 64, "bag_size": 16}},
        {"name": "ragged", "sizes": {"table_rows": 499, "width": 97, "bags": 53, "bag_size": 13}},
        {
            "name": "strided",
            "sizes": {"table_rows": 256, "width": 64, "bags": 64, "bag_size": 8},
            "layout": "strided",
        },
        {
            "name": "bfloat16",
            "sizes": {"table_rows": 300, "width": 100, "bags": 50, "bag_size": 20},
            "dtype": "bfloat16",
        },
    ]


ABOUT = {"category": "index", "regime": "memory"}


def cost(element_bytes=4):
    """8-byte places read, means written, and each row of the table that occurs read once.

    How many occur follows from chance: places are uniform.
    """
    lookups = bags * bag_size
    occurring = int(table_rows * (1 - (1 - 1 / table_rows) ** lookups))
    return {"bytes": lookups * 8 + (occurring + bags) * width * element_bytes, "flops": lookups * width}
