"""Logits over a vocabulary and the loss of each token in one: half a gigabyte of logits need not exist."""

import torch
from torch import nn

tokens = 8192
width = 1024
vocabulary = 32000


class Model(nn.Module):
    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        weight = 2 * torch.randn(vocabulary, width) / width**0.5
        self.weight = nn.Parameter(weight.to(torch.bfloat16))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = nn.functional.linear(x, self.weight).float()
        return nn.functional.cross_entropy(logits, labels, reduction="none")


def get_inputs():
    return [
        torch.randn(tokens, width, dtype=torch.bfloat16),
        torch.randint(0, vocabulary, (tokens,)),
    ]


def get_init_inputs():
    return [width, vocabulary]


def cases():
    return [
        {"name": "aligned", "sizes": {"tokens": 256, "width": 128, "vocabulary": 512}},
        {"name": "ragged", "sizes": {"tokens": 197, "width": 83, "vocabulary": 401}},
        {"name": "strided", "sizes": {"tokens": 160, "width": 96, "vocabulary": 320}, "layout": "strided"},
        {"name": "float16", "sizes": {"tokens": 192, "width": 160, "vocabulary": 600}, "dtype": "float16"},
    ]


ABOUT = {"category": "loss", "regime": "compute"}


def cost(element_bytes=2):
    """x, weight and 8-byte labels read, one 4-byte loss a token; the product and four operations a logit."""
    elements = tokens * width + width * vocabulary
    flops = 2 * tokens * width * vocabulary + 4 * tokens * vocabulary
    return {"bytes": elements * element_bytes + 12 * tokens, "flops": flops}
