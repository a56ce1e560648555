"""One new token attends to a long cache, four query heads to each stored head: reading the cache is the cost.

One query gives little to do in parallel: the cache must be cut into pieces whose partial answers are joined.
"""

import torch
from torch import nn

batch = 8
heads_stored = 8
group = 4
cache = 8192
width = 128


class Model(nn.Module):
    def forward(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        # Query heads that share a stored head are rows of one small query.
        grouped = q.reshape(q.shape[0], keys.shape[1], -1, q.shape[2])
        return nn.functional.scaled_dot_product_attention(grouped, keys, values).reshape(q.shape)


def get_inputs():
    return [
        torch.randn(batch, heads_stored * group, width, dtype=torch.bfloat16),
        torch.randn(batch, heads_stored, cache, width, dtype=torch.bfloat16),
        torch.randn(batch, heads_stored, cache, width, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return []


def cases():
    aligned = {"batch": 2, "heads_stored": 2, "group": 4, "cache": 256, "width": 64}
    ragged = {"batch": 3, "heads_stored": 2, "group": 3, "cache": 197, "width": 40}
    strided = {"batch": 2, "heads_stored": 3, "group": 2, "cache": 160, "width": 32}
    return [
        {"name": "aligned", "sizes": aligned},
        {"name": "ragged", "sizes": ragged},
        {"name": "strided", "sizes": strided, "layout": "strided"},
        {"name": "float16", "sizes": aligned, "dtype": "float16"},
    ]


ABOUT = {"category": "attention", "regime": "memory"}


def cost(element_bytes=2):
    """Keys and values read once, queries read, answers written; two products a query head and position."""
    heads = batch * heads_stored
    elements = 2 * heads * cache * width + 2 * heads * group * width
    return {"bytes": elements * element_bytes, "flops": 4 * heads * group * cache * width}
