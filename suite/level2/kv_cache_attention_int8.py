"""One new token attends to a long int8 cache with a scale for each head: every cached byte is read once and
widened on the fly, and long sequences must be shared among many blocks to fill the device."""

import torch
from torch import nn

batch = 8
heads = 16
sequence = 8192
width = 128


class Model(nn.Module):
    def forward(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        key_scale: torch.Tensor,
        value_scale: torch.Tensor,
    ) -> torch.Tensor:
        scores = (keys.float() @ query.float().unsqueeze(-1)).squeeze(-1)
        scores = scores * key_scale.float().unsqueeze(-1) * query.shape[-1] ** -0.5
        mixed = (torch.softmax(scores, dim=-1).unsqueeze(-2) @ values.float()).squeeze(-2)
        return (mixed * value_scale.float().unsqueeze(-1)).to(query.dtype)


def get_inputs():
    return [
        torch.randn(batch, heads, width, dtype=torch.bfloat16),
        torch.randint(-127, 128, (batch, heads, sequence, width), dtype=torch.int8),
        torch.randint(-127, 128, (batch, heads, sequence, width), dtype=torch.int8),
        (torch.rand(batch, heads, dtype=torch.bfloat16) * 1.5 + 0.5) / 73,
        (torch.rand(batch, heads, dtype=torch.bfloat16) * 9.9 + 0.1) / 73,
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "heads": 4, "sequence": 256, "width": 64}},
        {"name": "ragged", "sizes": {"batch": 3, "heads": 5, "sequence": 131, "width": 37}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "heads": 4, "sequence": 128, "width": 64},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"batch": 2, "heads": 3, "sequence": 200, "width": 64},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=2):
    """Both caches at one byte an element, queries, scales and result once; two products."""
    cached = batch * heads * sequence * width
    floats = batch * heads * (2 * width + 2)
    return {"bytes": 2 * cached + floats * element_bytes, "flops": 4 * cached}
