"""Float32 rows added to random rows of a table: some are met several times, most not at all."""

import torch
from torch import nn

table_rows = 262144
updates = 131072
width = 128


class Model(nn.Module):
    def forward(self, table: torch.Tensor, places: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return table.scatter_add(0, places[:, None].expand_as(rows), rows)


def get_inputs():
    return [
        torch.randn(table_rows, width),
        torch.randint(0, table_rows, (updates,)),
        torch.randn(updates, width),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"table_rows": 512, "updates": 256, "width": 128}},
        {"name": "ragged", "sizes": {"table_rows": 331, "updates": 499, "width": 97}},
        {
            "name": "strided",
            "sizes": {"table_rows": 256, "updates": 256, "width": 64},
            "layout": "strided",
        },
        {"name": "crowded", "sizes": {"table_rows": 20, "updates": 600, "width": 100}},
    ]


ABOUT = {"category": "index", "regime": "memory"}


def cost(element_bytes=4):
    """Table, rows and 8-byte places read, the new table written; one addition for each element added."""
    return {
        "bytes": (2 * table_rows + updates) * width * element_bytes + updates * 8,
        "flops": updates * width,
    }
