"""Random columns picked out of a bfloat16 matrix: writes are dense, reads are two bytes here and there."""

import torch
from torch import nn

rows = 16384
cols = 4096
chosen = 2048


class Model(nn.Module):
    def forward(self, x: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        return torch.index_select(x, 1, columns)


def get_inputs():
    return [torch.randn(rows, cols, dtype=torch.bfloat16), torch.randint(0, cols, (chosen,))]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 128, "cols": 512, "chosen": 256}},
        {"name": "ragged", "sizes": {"rows": 97, "cols": 499, "chosen": 331}},
        {"name": "strided", "sizes": {"rows": 64, "cols": 512, "chosen": 128}, "layout": "strided"},
        {"name": "float32", "sizes": {"rows": 100, "cols": 300, "chosen": 200}, "dtype": "float32"},
    ]


ABOUT = {"category": "index", "regime": "memory"}


def cost(element_bytes=2):
    """8-byte indices read, chosen columns written, and each column that occurs read once.

    How many occur follows from chance: indices are uniform.
    """
    occurring = int(cols * (1 - (1 - 1 / cols) ** chosen))
    return {"bytes": chosen * 8 + rows * (occurring + chosen) * element_bytes, "flops": 0}
