"""Look tokens up in an int8 embedding table with a scale for each row and widen them to bfloat16: gathered
rows of bytes in, twice as many bytes out, and the scale is a second, scattered read."""

import torch
from torch import nn

vocabulary = 131072
width = 1024
tokens = 65536


class Model(nn.Module):
    def forward(self, ids: torch.Tensor, codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return codes[ids].to(scale.dtype) * scale[ids].unsqueeze(-1)


def get_inputs():
    return [
        torch.randint(0, vocabulary, (tokens,)),
        torch.randint(-127, 128, (vocabulary, width), dtype=torch.int8),
        (torch.rand(vocabulary, dtype=torch.bfloat16) * 9.9 + 0.1) / 127,
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"vocabulary": 512, "width": 256, "tokens": 128}},
        {"name": "ragged", "sizes": {"vocabulary": 499, "width": 131, "tokens": 97}},
        {
            "name": "strided",
            "sizes": {"vocabulary": 256, "width": 128, "tokens": 64},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"vocabulary": 300, "width": 200, "tokens": 100},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=2):
    """8-byte ids read, the result written, and each row of the table that occurs read once.

    How many occur follows from chance: ids are uniform, so the expected share is 1 - (1 - 1/n)^tokens.
    """
    touched = int(vocabulary * (1 - (1 - 1 / vocabulary) ** tokens))
    floats = tokens * width + touched
    return {"bytes": tokens * 8 + touched * width + floats * element_bytes, "flops": tokens * width}
