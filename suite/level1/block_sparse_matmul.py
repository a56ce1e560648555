"""A product whose left side keeps a quarter of its 64 by 64 blocks, named by a mask: skipping the others
saves three quarters of the work if blocks are found without reading them."""

import torch
from torch import nn

row_blocks = 128
depth_blocks = 128
cols = 4096
block = 64


class Model(nn.Module):
    def forward(self, left: torch.Tensor, mask: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        kept = mask.repeat_interleave(block, dim=0).repeat_interleave(block, dim=1)
        return left.masked_fill(~kept, 0.0) @ right


def get_inputs():
    kept = (depth_blocks + 3) // 4
    return [
        torch.randn(row_blocks * block, depth_blocks * block, dtype=torch.bfloat16),
        torch.rand(row_blocks, depth_blocks).argsort(dim=-1) < kept,
        torch.randn(depth_blocks * block, cols, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"row_blocks": 4, "depth_blocks": 8, "cols": 128}},
        {"name": "ragged", "sizes": {"row_blocks": 3, "depth_blocks": 7, "cols": 131}},
        {
            "name": "strided",
            "sizes": {"row_blocks": 2, "depth_blocks": 5, "cols": 96},
            "layout": "strided",
        },
        {
            "name": "float16",
            "sizes": {"row_blocks": 3, "depth_blocks": 6, "cols": 100},
            "dtype": "float16",
        },
    ]


ABOUT = {"category": "sparse", "regime": "compute"}


def cost(element_bytes=2):
    """Kept blocks, the mask's bytes and the right side read, the result written; kept blocks multiplied."""
    kept = row_blocks * ((depth_blocks + 3) // 4) * block * block
    elements = kept + (row_blocks + depth_blocks) * block * cols
    return {
        "bytes": elements * element_bytes + row_blocks * depth_blocks,
        "flops": 2 * kept * cols,
    }
