"""A branch added to the residual stream through a tanh gate for each item and channel, in bfloat16."""

import torch
from torch import nn

batch = 16
tokens = 4096
width = 1024


class Model(nn.Module):
    def forward(self, residual: torch.Tensor, branch: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return residual + torch.tanh(gate).unsqueeze(1) * branch


def get_inputs():
    return [
        torch.randn(batch, tokens, width, dtype=torch.bfloat16),
        torch.randn(batch, tokens, width, dtype=torch.bfloat16),
        torch.randn(batch, width, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 4, "tokens": 64, "width": 256}},
        {"name": "ragged", "sizes": {"batch": 3, "tokens": 53, "width": 331}},
        {"name": "strided", "sizes": {"batch": 2, "tokens": 64, "width": 320}, "layout": "strided"},
        {"name": "float32", "sizes": {"batch": 2, "tokens": 48, "width": 384}, "dtype": "float32"},
    ]


ABOUT = {"category": "elementwise", "regime": "memory"}


def cost(element_bytes=2):
    """Two tensors and the gates read, one written; a product and a sum for each element."""
    elements = batch * tokens * width
    return {"bytes": (3 * elements + batch * width) * element_bytes, "flops": 2 * elements}
