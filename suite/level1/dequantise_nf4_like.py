"""Look packed 4-bit codes up in a table of 16 values and scale them by blocks of 64: a gather from a table
that fits into registers or shared memory, done for every element of a weight."""

import torch
from torch import nn

rows = 8192
blocks = 256
block = 64
levels = 16


class Model(nn.Module):
    """The low half of a byte is the even element."""

    def forward(self, packed: torch.Tensor, table: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        codes = torch.stack((packed % levels, packed // levels), dim=-1).flatten(-2)
        values = table[codes.to(torch.int32)].unflatten(-1, (scale.shape[-1], block))
        return (values * scale.unsqueeze(-1)).flatten(-2)


def get_inputs():
    return [
        torch.randint(0, 256, (rows, blocks * block // 2), dtype=torch.uint8),
        torch.randn(levels).sort().values.to(torch.bfloat16),
        torch.rand(rows, blocks, dtype=torch.bfloat16) * 9.9 + 0.1,
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "blocks": 32}},
        {"name": "ragged", "sizes": {"rows": 37, "blocks": 13}},
        {"name": "strided", "sizes": {"rows": 64, "blocks": 16}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 64, "blocks": 11}, "dtype": "float32"},
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=2):
    """Packed codes, table and scales read, one number written for each code."""
    elements = rows * blocks * block
    floats = elements + rows * blocks + levels
    return {"bytes": elements // 2 + floats * element_bytes, "flops": elements}
