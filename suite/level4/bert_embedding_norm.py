"""BERT base, before its layers: word, position and type embeddings added, then LayerNorm; float32.

A gather of rows of 768 with a norm over each: the sum stays in registers and only the result is written.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 64
sequence = 512
words = 30522
kinds = 2
width = 768
eps = 1e-12


class Model(nn.Module):
    def __init__(self, words: int, positions: int, kinds: int, width: int) -> None:
        super().__init__()
        self.word = nn.Parameter(torch.randn(words, width))
        self.position = nn.Parameter(torch.randn(positions, width))
        self.kind = nn.Parameter(torch.randn(kinds, width))
        self.gain = nn.Parameter(torch.rand(width) + 0.5)
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, tokens: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        x = F.embedding(tokens, self.word) + F.embedding(types, self.kind) + self.position
        return F.layer_norm(x, self.gain.shape, self.gain, self.bias, eps)


def get_inputs():
    return [torch.randint(0, words, (batch, sequence)), torch.randint(0, kinds, (batch, sequence))]


def get_init_inputs():
    return [words, sequence, kinds, width]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 4, "sequence": 128, "words": 1024, "width": 256}},
        {"name": "ragged", "sizes": {"batch": 3, "sequence": 101, "words": 997, "kinds": 3, "width": 211}},
        {
            "name": "strided",
            "sizes": {"batch": 8, "sequence": 64, "words": 512, "width": 128},
            "layout": "strided",
        },
        {
            "name": "bfloat16",
            "sizes": {"batch": 4, "sequence": 96, "words": 800, "width": 192},
            "dtype": "bfloat16",
        },
    ]


ABOUT = {"category": "index", "regime": "memory"}


def cost(element_bytes=4):
    """8-byte numbers and each row that occurs read, y written.

    How many words occur follows from chance: they are drawn evenly.
    """
    tokens = batch * sequence
    occurring = int(words * (1 - (1 - 1 / words) ** tokens))
    rows = occurring + sequence + min(kinds, tokens) + 2 + tokens
    return {"bytes": 16 * tokens + rows * width * element_bytes, "flops": 9 * tokens * width}
