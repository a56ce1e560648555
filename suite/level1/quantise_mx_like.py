"""Quantise rows to int8 mantissas with one power of two for every 32 elements: the exponent of the largest is
taken from its bits, and no division is needed, only shifts of exponents."""

import torch
from torch import nn

rows = 8192
blocks = 128
block = 32
limit = 127


class Model(nn.Module):
    """Returns mantissas and int8 exponents: mantissa * 2^exponent is about x."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        wide = x.float().unflatten(-1, (x.shape[-1] // block, block))
        # The largest lies below 2^top and not below half of that, so mantissas reach 64 to 127.
        top = torch.frexp(wide.abs().amax(dim=-1, keepdim=True)).exponent
        exponent = top - 7
        mantissas = torch.round(torch.ldexp(wide, -exponent)).clamp(-limit, limit)
        return mantissas.to(torch.int8).flatten(-2), exponent.squeeze(-1).to(torch.int8)


def get_inputs():
    factors = torch.exp2(torch.rand(rows, blocks, 1) * 12 - 6)
    return [(torch.randn(rows, blocks, block) * factors).flatten(-2)]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"rows": 64, "blocks": 64}},
        {"name": "ragged", "sizes": {"rows": 37, "blocks": 31}},
        {"name": "strided", "sizes": {"rows": 64, "blocks": 16}, "layout": "strided"},
        {"name": "row_scaled", "sizes": {"rows": 64, "blocks": 29}, "distribution": "row_scaled"},
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=4):
    """x read, a byte written for each element and one for each block."""
    elements = rows * blocks * block
    return {"bytes": elements * (element_bytes + 1) + rows * blocks, "flops": 3 * elements}
