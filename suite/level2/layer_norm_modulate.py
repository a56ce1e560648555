"""Layer norm with a scale and shift of its own for each item of the batch, as in diffusion transformers."""

import torch
from torch import nn

batch = 16
tokens = 4096
width = 1152
eps = 1e-6


class Model(nn.Module):
    def forward(self, x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        normed = nn.functional.layer_norm(x, x.shape[-1:], eps=eps)
        return normed * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


def get_inputs():
    return [
        torch.randn(batch, tokens, width, dtype=torch.bfloat16) * 2,
        torch.randn(batch, width, dtype=torch.bfloat16),
        torch.randn(batch, width, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 4, "tokens": 64, "width": 512}},
        {"name": "ragged", "sizes": {"batch": 3, "tokens": 53, "width": 331}},
        {"name": "strided", "sizes": {"batch": 2, "tokens": 64, "width": 320}, "layout": "strided"},
        {"name": "float32", "sizes": {"batch": 2, "tokens": 48, "width": 384}, "dtype": "float32"},
    ]


ABOUT = {"category": "norm", "regime": "memory"}


def cost(element_bytes=2):
    """x, scales and shifts read, y written; about eight operations an element."""
    elements = batch * tokens * width
    return {"bytes": (2 * elements + 2 * batch * width) * element_bytes, "flops": 8 * elements}
