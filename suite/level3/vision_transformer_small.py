"""A small vision transformer in bfloat16: patches, class token, two pre-norm blocks, a head on that token.

A whole model in one call: 197 tokens fill no tile, and the last block is needed for one token of each image.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 128
grid = 14
patch = 16
heads = 6
head_width = 64
classes = 1000
width = heads * head_width
blocks = 2


def linear(features_in: int, features_out: int) -> nn.Linear:
    layer = nn.Linear(features_in, features_out, dtype=torch.bfloat16)
    nn.init.normal_(layer.weight, std=features_in**-0.5)
    nn.init.normal_(layer.bias, std=0.1)
    return layer


def norm(features: int) -> nn.LayerNorm:
    layer = nn.LayerNorm(features, dtype=torch.bfloat16)
    nn.init.uniform_(layer.weight, 0.5, 1.5)
    nn.init.normal_(layer.bias, std=0.1)
    return layer


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = norm(width), norm(width)
        self.qkv, self.out = linear(width, 3 * width), linear(width, width)
        self.up, self.down = linear(width, 4 * width), linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, patch: int, tokens: int, width: int, heads: int, classes: int) -> None:
        super().__init__()
        self.patch = patch
        self.embed = linear(3 * patch * patch, width)
        # Small, as biases are: what all images share would hide what one token hears of its own image.
        self.token = nn.Parameter((torch.randn(1, 1, width) * 0.1).to(torch.bfloat16))
        self.position = nn.Parameter((torch.randn(tokens, width) * 0.1).to(torch.bfloat16))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm, self.head = norm(width), linear(width, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        patches = F.unfold(image, self.patch, stride=self.patch).transpose(1, 2)
        x = torch.cat((self.token.expand(image.shape[0], -1, -1), self.embed(patches)), 1) + self.position
        return self.head(self.norm(self.blocks(x)[:, 0]))


def get_inputs():
    return [torch.randn(batch, 3, grid * patch, grid * patch, dtype=torch.bfloat16)]


def get_init_inputs():
    return [patch, grid * grid + 1, width, heads, classes]


def cases():
    small = {"heads": 4, "head_width": 32, "classes": 100}
    return [
        {"name": "aligned", "sizes": {**small, "batch": 16, "grid": 4, "patch": 8}},
        {"name": "ragged", "sizes": {**small, "batch": 13, "grid": 5, "patch": 7, "heads": 3, "classes": 97}},
        {"name": "strided", "sizes": {**small, "batch": 8, "grid": 3, "patch": 8}, "layout": "strided"},
        {"name": "float32", "sizes": {**small, "batch": 6, "grid": 4, "patch": 6}, "dtype": "float32"},
    ]


ABOUT = {"category": "attention", "regime": "compute"}


def cost(element_bytes=2):
    """Images and weights read, logits written; of all tokens the last block needs keys and values only."""
    tokens, pixels = grid * grid + 1, 3 * patch * patch
    block = 12 * width * width + 13 * width
    weights = (pixels + 1) * width + (tokens + 1) * width + blocks * block + 2 * width + (width + 1) * classes
    first = tokens * 12 * width * width + 2 * tokens * tokens * width
    last = tokens * 2 * width * width + 10 * width * width + 2 * tokens * width
    products = (tokens - 1) * pixels * width + (blocks - 1) * first + last + width * classes
    elements = batch * (pixels * grid * grid + classes) + weights
    return {"bytes": elements * element_bytes, "flops": 2 * batch * products}
