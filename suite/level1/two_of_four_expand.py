"""Expand a weight that keeps two of every four elements: values lie packed, and a code for each four says
where they belong; the other two become zero. Everything is moved, nothing is computed."""

import torch
from torch import nn

rows = 8192
quads = 4096


class Model(nn.Module):
    """A code holds the place of the first value in its lowest two bits and that of the second above them."""

    def forward(self, values: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        places = torch.stack((codes & 3, codes >> 2), dim=-1).long()
        pairs = values.unflatten(-1, (codes.shape[-1], 2))
        empty = values.new_zeros(*codes.shape, 4)
        return empty.scatter(-1, places, pairs).flatten(-2)


def get_inputs():
    # (0, 1), (0, 2), (0, 3), (1, 2), (1, 3) and (2, 3).
    legal = torch.tensor([4, 8, 12, 9, 13, 14], dtype=torch.uint8)
    return [
        torch.randn(rows, 2 * quads, dtype=torch.bfloat16),
        legal[torch.randint(0, len(legal), (rows, quads))],
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "quads": 512}},
        {"name": "ragged", "sizes": {"rows": 37, "quads": 249}},
        {"name": "strided", "sizes": {"rows": 64, "quads": 128}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 50, "quads": 300}, "dtype": "float32"},
    ]


ABOUT = {"category": "sparse", "regime": "memory"}


def cost(element_bytes=2):
    """Two values and a byte read, four elements written for each four."""
    return {"bytes": rows * quads * (6 * element_bytes + 1), "flops": 0}
