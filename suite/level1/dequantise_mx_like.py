"""Turn int8 mantissas with a shared power of two for every 32 elements into bfloat16: the result is exact, so
a kernel may build it from integers alone, but it must not be off by a bit anywhere."""

import torch
from torch import nn

rows = 8192
blocks = 512
block = 32


class Model(nn.Module):
    def forward(self, mantissas: torch.Tensor, exponents: torch.Tensor) -> torch.Tensor:
        wide = mantissas.float().unflatten(-1, (exponents.shape[-1], block))
        scaled = torch.ldexp(wide, exponents.to(torch.int32).unsqueeze(-1))
        return scaled.flatten(-2).to(torch.bfloat16)


def get_inputs():
    return [
        torch.randint(-127, 128, (rows, blocks * block), dtype=torch.int8),
        torch.randint(-12, 5, (rows, blocks), dtype=torch.int8),
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "blocks": 64}},
        {"name": "ragged", "sizes": {"rows": 37, "blocks": 31}},
        {"name": "strided", "sizes": {"rows": 64, "blocks": 16}, "layout": "strided"},
        {"name": "offset", "sizes": {"rows": 61, "blocks": 19}, "layout": "offset"},
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost():
    """A byte read and two written for each element; a byte read for each block."""
    elements = rows * blocks * block
    return {"bytes": 3 * elements + rows * blocks, "flops": elements}
