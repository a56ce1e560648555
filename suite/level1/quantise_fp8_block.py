"""Quantise float32 rows to 8-bit floats with a scale for every 128 neighbouring elements (the last block of a
row may be shorter): many small maxima, each of which fits into one warp. The codes come back as bytes."""

import torch
from torch import nn

rows = 8192
cols = 8192
block = 128
largest = 448


class Model(nn.Module):
    """Returns the bytes of the 8-bit floats and a float32 scale for each block of a row."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cols = x.shape[-1]
        blocks = (cols + block - 1) // block
        wide = nn.functional.pad(x.float(), (0, blocks * block - cols)).unflatten(-1, (blocks, block))
        scale = wide.abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / largest
        narrow = (wide / scale).clamp(-largest, largest).flatten(-2)[..., :cols]
        return narrow.to(torch.float8_e4m3fn).contiguous().view(torch.uint8), scale.squeeze(-1)


def get_inputs():
    blocks = (cols + block - 1) // block
    factors = torch.rand(rows, blocks) * 9.9 + 0.1
    x = torch.randn(rows, cols)
    return [x * factors.repeat_interleave(block, dim=-1)[:, :cols]]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "cols": 2048}},
        {"name": "ragged", "sizes": {"rows": 37, "cols": 997}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512}, "layout": "strided"},
        {"name": "mixture", "sizes": {"rows": 64, "cols": 1000}, "distribution": "mixture"},
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=4):
    """x read, one byte written for each element and a 4-byte scale for each block."""
    blocks = rows * ((cols + block - 1) // block)
    return {"bytes": rows * cols * (element_bytes + 1) + blocks * 4, "flops": 2 * rows * cols}
