"""An all-to-all of tokens on one device: rank i holds a block of tokens for every rank j, and afterwards rank
j holds those of every i. A transposition of large blocks, each of which moves as a whole."""

import torch
from torch import nn

ranks = 8
tokens = 512
width = 4096


class Model(nn.Module):
    """The first dimension stands for the group that sends, the second for the one that receives."""

    def forward(self, blocks: torch.Tensor) -> torch.Tensor:
        return blocks.transpose(0, 1).clone(memory_format=torch.contiguous_format)


def get_inputs():
    return [torch.randn(ranks, ranks, tokens, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"ranks": 4, "tokens": 16, "width": 256}},
        {"name": "ragged", "sizes": {"ranks": 3, "tokens": 37, "width": 131}},
        {"name": "strided", "sizes": {"ranks": 4, "tokens": 8, "width": 128}, "layout": "strided"},
        {"name": "float32", "sizes": {"ranks": 5, "tokens": 10, "width": 100}, "dtype": "float32"},
    ]


ABOUT = {"category": "communication", "regime": "memory"}


def cost(element_bytes=2):
    """Every element read once and written once."""
    return {"bytes": 2 * ranks * ranks * tokens * width * element_bytes, "flops": 0}
