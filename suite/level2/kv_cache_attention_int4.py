"""One new token attends to a cache of 4-bit keys and values with a scale for each cached vector: two numbers
come out of each byte, and unpacking is most of the arithmetic."""

import torch
from torch import nn

batch = 16
heads = 16
sequence = 8192
pairs = 64


class Model(nn.Module):
    """Two codes in a byte, the low half first; a code is the number plus eight."""

    def forward(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        key_scale: torch.Tensor,
        value_scale: torch.Tensor,
    ) -> torch.Tensor:
        scores = (self.widened(keys, key_scale) @ query.float().unsqueeze(-1)).squeeze(-1)
        weights = torch.softmax(scores * query.shape[-1] ** -0.5, dim=-1)
        mixed = weights.unsqueeze(-2) @ self.widened(values, value_scale)
        return mixed.squeeze(-2).to(query.dtype)

    def widened(self, packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        codes = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)
        return (codes.to(torch.int8) - 8).float() * scale.float().unsqueeze(-1)


def get_inputs():
    return [
        torch.randn(batch, heads, 2 * pairs, dtype=torch.bfloat16),
        torch.randint(0, 256, (batch, heads, sequence, pairs), dtype=torch.uint8),
        torch.randint(0, 256, (batch, heads, sequence, pairs), dtype=torch.uint8),
        (torch.rand(batch, heads, sequence, dtype=torch.bfloat16) * 1.5 + 0.5) / 5,
        (torch.rand(batch, heads, sequence, dtype=torch.bfloat16) * 9.9 + 0.1) / 5,
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "heads": 4, "sequence": 256, "pairs": 32}},
        {"name": "ragged", "sizes": {"batch": 3, "heads": 5, "sequence": 131, "pairs": 37}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "heads": 4, "sequence": 128, "pairs": 32},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"batch": 2, "heads": 3, "sequence": 200, "pairs": 32},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=2):
    """Both caches at half a byte an element, their scales, queries and result once; two products."""
    vectors = batch * heads * sequence
    floats = 2 * vectors + 4 * batch * heads * pairs
    return {"bytes": 2 * vectors * pairs + floats * element_bytes, "flops": 8 * vectors * pairs}
