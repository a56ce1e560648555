"""Logits divided by a temperature for each row, then a softmax: what a sampler does before it draws."""

import torch
from torch import nn

rows = 4096
vocabulary = 32000


class Model(nn.Module):
    def forward(self, logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
        scaled = logits.float() / temperature.float().unsqueeze(-1)
        return torch.softmax(scaled, dim=-1).to(logits.dtype)


def get_inputs():
    return [
        torch.randn(rows, vocabulary, dtype=torch.bfloat16) * 2,
        torch.rand(rows).to(torch.bfloat16) + 0.5,
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "vocabulary": 2048}},
        {"name": "ragged", "sizes": {"rows": 37, "vocabulary": 1999}},
        {"name": "strided", "sizes": {"rows": 48, "vocabulary": 1000}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 32, "vocabulary": 1500}, "dtype": "float32"},
    ]


ABOUT = {"category": "softmax", "regime": "memory"}


def cost(element_bytes=2):
    """Logits and temperatures read, probabilities written; about six operations an element."""
    return {"bytes": (2 * rows * vocabulary + rows) * element_bytes, "flops": 6 * rows * vocabulary}
