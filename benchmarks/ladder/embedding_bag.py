"""Sums of gathered rows, as a recommender or an n-gram model looks them up."""

import torch
from torch import nn

table_rows = 262144
width = 128
bags = 32768
bag_size = 32


class Model(nn.Module):
    def __init__(self, table_rows: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(table_rows, width))

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        return nn.functional.embedding_bag(indices, self.weight, mode="sum")


def get_inputs():
    return [torch.randint(0, table_rows, (bags, bag_size))]


def get_init_inputs():
    return [table_rows, width]


def cost(element_bytes=4):
    """8-byte indices read, sums written, and each row of the table that occurs read once.

    How many occur follows from chance: indices are uniform, so the expected share is 1 - (1 - 1/n)^lookups.
    """
    lookups = bags * bag_size
    touched = table_rows * (1 - (1 - 1 / table_rows) ** lookups)
    return {
        "bytes": lookups * 8 + (touched + bags) * width * element_bytes,
        "flops": lookups * width,
    }
