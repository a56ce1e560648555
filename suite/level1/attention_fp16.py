"""Full attention in float16: two products with a softmax between, whose scores should never reach memory."""

import torch
from torch import nn

batch = 4
heads = 16
sequence = 2048
width = 128


class Model(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v)


def get_inputs():
    return [
        torch.randn(batch, heads, sequence, width, dtype=torch.float16),
        torch.randn(batch, heads, sequence, width, dtype=torch.float16),
        torch.randn(batch, heads, sequence, width, dtype=torch.float16),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "heads": 2, "sequence": 128, "width": 64}},
        {"name": "ragged", "sizes": {"batch": 1, "heads": 3, "sequence": 101, "width": 72}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "heads": 2, "sequence": 96, "width": 32},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"batch": 1, "heads": 2, "sequence": 112, "width": 64},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "attention", "regime": "compute"}


def cost(element_bytes=2):
    """Three tensors read, one written; two products over all pairs of positions."""
    elements = batch * heads * sequence * width
    return {"bytes": 4 * elements * element_bytes, "flops": 4 * elements * sequence}
