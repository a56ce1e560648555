"""CLIP's text tower, its end: LayerNorm of all tokens, the one with the highest number projected, bfloat16.

Two results: the normed tokens, which image models read, and one vector for each text. Numbers are distinct.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 1024
tokens = 77
width = 768
projected = 768


class Model(nn.Module):
    def __init__(self, width: int, projected: int) -> None:
        super().__init__()
        self.gain = nn.Parameter((torch.rand(width) + 0.5).to(torch.bfloat16))
        self.bias = nn.Parameter(torch.randn(width).to(torch.bfloat16))
        self.project = nn.Parameter((torch.randn(width, projected) / width**0.5).to(torch.bfloat16))

    def forward(self, x: torch.Tensor, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = F.layer_norm(x, self.gain.shape, self.gain, self.bias)
        last = numbers.argmax(-1).reshape(-1, 1, 1).expand(-1, 1, x.shape[-1])
        return x, x.gather(1, last).squeeze(1) @ self.project


def get_inputs():
    return [
        torch.randn(batch, tokens, width, dtype=torch.bfloat16),
        torch.rand(batch, tokens).argsort(-1),
    ]


def get_init_inputs():
    return [width, projected]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 16, "tokens": 32, "width": 256, "projected": 128}},
        {"name": "ragged", "sizes": {"batch": 13, "tokens": 29, "width": 211, "projected": 97}},
        {
            "name": "strided",
            "sizes": {"batch": 16, "tokens": 16, "width": 128, "projected": 64},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"batch": 8, "tokens": 20, "width": 192, "projected": 96},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "norm", "regime": "memory"}


def cost(element_bytes=2):
    """x, 8-byte numbers and weights read, both results written; the norm and one small product."""
    rows = batch * tokens
    elements = 2 * rows * width + batch * projected + width * (projected + 2)
    return {
        "bytes": 8 * rows + elements * element_bytes,
        "flops": 8 * rows * width + 2 * batch * width * projected,
    }
