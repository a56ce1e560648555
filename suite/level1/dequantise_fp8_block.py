"""Turn an 8-bit float weight back into bfloat16 with a scale for each tile of 128 by 128 (tiles at the edges
may be cut off): one scale serves many rows, and the cast from 8 bits is the only arithmetic of note."""

import torch
from torch import nn

rows = 8192
cols = 16384
block = 128


class Model(nn.Module):
    def forward(self, codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        rows, cols = codes.shape
        tall = scale.repeat_interleave(block, dim=0)[:rows]
        return codes.to(scale.dtype) * tall.repeat_interleave(block, dim=1)[:, :cols]


def get_inputs():
    row_blocks, col_blocks = (rows + block - 1) // block, (cols + block - 1) // block
    return [
        torch.randn(rows, cols, dtype=torch.bfloat16).to(torch.float8_e4m3fn),
        torch.rand(row_blocks, col_blocks, dtype=torch.bfloat16) * 9.9 + 0.1,
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 256, "cols": 512}},
        {"name": "ragged", "sizes": {"rows": 331, "cols": 401}},
        {"name": "strided", "sizes": {"rows": 256, "cols": 300}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 200, "cols": 500}, "dtype": "float32"},
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=2):
    """One byte read and one number written for each element; the scales read once."""
    tiles = ((rows + block - 1) // block) * ((cols + block - 1) // block)
    return {
        "bytes": rows * cols * (1 + element_bytes) + tiles * element_bytes,
        "flops": rows * cols,
    }
