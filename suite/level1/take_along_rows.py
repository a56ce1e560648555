"""From each float32 row as many elements as it has, at places of its own: a row held on chip is read once."""

import torch
from torch import nn

rows = 8192
cols = 4096
taken = 4096


class Model(nn.Module):
    def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return torch.take_along_dim(x, places, dim=1)


def get_inputs():
    return [torch.randn(rows, cols), torch.randint(0, cols, (rows, taken))]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 512, "taken": 256}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 499, "taken": 331}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 256, "taken": 128}, "layout": "strided"},
        {
            "name": "bfloat16",
            "sizes": {"rows": 50, "cols": 300, "taken": 400},
            "dtype": "bfloat16",
        },
    ]


ABOUT = {"category": "index", "regime": "memory"}


def cost(element_bytes=4):
    """8-byte places read, elements written, and each element that is named read once.

    How many are named follows from chance: places are uniform.
    """
    named = int(cols * (1 - (1 - 1 / cols) ** taken))
    return {"bytes": rows * taken * 8 + rows * (named + taken) * element_bytes, "flops": 0}
