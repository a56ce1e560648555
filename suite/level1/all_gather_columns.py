"""An all-gather of column shards on one device: each rank holds some columns of every row, and whole rows are
put together. Pure movement in pieces as wide as a shard."""

import torch
from torch import nn

ranks = 8
rows = 8192
cols = 2048


class Model(nn.Module):
    """The first dimension stands for the group."""

    def forward(self, shards: torch.Tensor) -> torch.Tensor:
        return torch.cat(shards.unbind(0), dim=-1)


def get_inputs():
    return [torch.randn(ranks, rows, cols, dtype=torch.bfloat16)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"ranks": 8, "rows": 64, "cols": 128}},
        {"name": "ragged", "sizes": {"ranks": 5, "rows": 67, "cols": 131}},
        {"name": "strided", "sizes": {"ranks": 4, "rows": 64, "cols": 96}, "layout": "strided"},
        {"name": "float32", "sizes": {"ranks": 3, "rows": 50, "cols": 100}, "dtype": "float32"},
    ]


ABOUT = {"category": "communication", "regime": "memory"}


def cost(element_bytes=2):
    """Every element read once and written once."""
    return {"bytes": 2 * ranks * rows * cols * element_bytes, "flops": 0}
