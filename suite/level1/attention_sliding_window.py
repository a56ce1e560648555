"""Causal attention that looks back over a fixed window only: most tiles are empty, two edges need a mask."""

import torch
from torch import nn

batch = 2
heads = 8
sequence = 4096
width = 128
window = 1024


class Model(nn.Module):
    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        position = torch.arange(q.shape[2], device=q.device)
        back = position.unsqueeze(1) - position.unsqueeze(0)
        visible = (back >= 0) & (back < self.window)
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=visible)


def get_inputs():
    return [
        torch.randn(batch, heads, sequence, width, dtype=torch.bfloat16),
        torch.randn(batch, heads, sequence, width, dtype=torch.bfloat16),
        torch.randn(batch, heads, sequence, width, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return [window]


def cases():
    aligned = {"batch": 2, "heads": 2, "sequence": 128, "width": 64, "window": 32}
    ragged = {"batch": 1, "heads": 3, "sequence": 113, "width": 40, "window": 29}
    strided = {"batch": 2, "heads": 2, "sequence": 96, "width": 32, "window": 17}
    return [
        {"name": "aligned", "sizes": aligned},
        {"name": "ragged", "sizes": ragged},
        {"name": "strided", "sizes": strided, "layout": "strided"},
        {"name": "float16", "sizes": aligned, "dtype": "float16"},
    ]


ABOUT = {"category": "attention", "regime": "compute"}


def cost(element_bytes=2):
    """Three tensors read, one written; two products over the pairs inside the window."""
    elements = batch * heads * sequence * width
    pairs = sum(min(row + 1, window) for row in range(sequence))
    return {"bytes": 4 * elements * element_bytes, "flops": 4 * batch * heads * pairs * width}
