"""Between which of 65536 sorted edges each number lies: sixteen dependent reads, the first ones shared."""

import torch
from torch import nn

rows = 8192
cols = 4096
edge_count = 65536


class Model(nn.Module):
    def forward(self, edges: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.searchsorted(edges, x)


def get_inputs():
    return [torch.sort(torch.randn(edge_count)).values, torch.randn(rows, cols)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 512, "edge_count": 4096}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 499, "edge_count": 9973}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 256, "edge_count": 1024}, "layout": "strided"},
        {"name": "few_edges", "sizes": {"rows": 50, "cols": 1000, "edge_count": 20}},
    ]


ABOUT = {"category": "index", "regime": "memory"}


def cost(element_bytes=4):
    """Numbers and edges read, 8-byte places written; seventeen comparisons at most, none of them certain."""
    return {"bytes": (rows * cols + edge_count) * element_bytes + rows * cols * 8, "flops": 0}
