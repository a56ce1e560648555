"""Other ways to write operators, so that inductor generates kernels where it would call a library.

Each takes the arguments of the operator and answers with plain tensor operations, or with NotImplemented
where it is not meant. Depthwise convolutions and products with a thin matrix move more memory than they
compute: as sums they are fused with what is around them. Results differ from the library's in the order of
sums.

Not covered: transposed convolutions, groups of more than one channel, gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import torch
from torch._ops import OpOverload

from assay.lift.record import CannotLift

MOST_TAPS = 64
"""Of a filter: each is a load for every element."""
THIN = 8
"""Rows or columns of a matrix up to which a product is a few weighted sums."""
aten = torch.ops.aten


def depthwise_as_taps(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """A convolution with a filter for each channel, as a sum of shifted products."""
    channels, taps = x.shape[1], tuple(weight.shape[2:])
    if transposed or groups != channels or weight.shape[0] != channels or prod(taps) > MOST_TAPS:
        return NotImplemented
    rank = len(taps)
    stride, padding, dilation = (list(v) * (rank if len(v) == 1 else 1) for v in (stride, padding, dilation))
    padded = torch.constant_pad_nd(x, [edge for axis in reversed(padding) for edge in (axis, axis)])
    padded = padded.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else padded
    lengths = [
        (padded.shape[2 + axis] - dilation[axis] * (taps[axis] - 1) - 1) // stride[axis] + 1
        for axis in range(rank)
    ]
    total = None
    for place in product(*(range(size) for size in taps)):
        part = padded
        for axis in range(rank):
            start = place[axis] * dilation[axis]
            part = aten.slice(
                part, 2 + axis, start, start + stride[axis] * (lengths[axis] - 1) + 1, stride[axis]
            )
        term = part * weight[(slice(None), 0, *place)].view(1, channels, *([1] * rank))
        total = term if total is None else total + term
    assert total is not None
    if bias is not None:
        total = total + bias.view(1, channels, *([1] * rank))
    return total.to(x.dtype)


def thin_product_as_sums(left: torch.Tensor, right: torch.Tensor) -> Any:
    """A product of matrices of which one has few rows or columns, as sums along the common axis."""
    if min(left.shape[-2], right.shape[-1]) > THIN:
        return NotImplemented
    wide = torch.float32 if left.dtype in (torch.float16, torch.bfloat16) else left.dtype
    terms = left.to(wide).unsqueeze(-1) * right.to(wide).unsqueeze(-3)
    return terms.sum(-2).to(left.dtype)


def rms_norm_as_steps(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """Root mean square norm in float32; torch.export leaves it whole, and inductor then calls the library."""
    wide = x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x
    small = torch.finfo(wide.dtype).eps if eps is None else eps
    axes = list(range(x.dim() - len(normalized_shape), x.dim()))
    y = wide * torch.rsqrt((wide * wide).mean(axes, keepdim=True) + small)
    return (y if weight is None else y * weight).to(x.dtype)


Decompositions = Mapping[OpOverload, Callable[..., Any]]
ALWAYS: Decompositions = {aten.rms_norm.default: rms_norm_as_steps}
"""For every variant."""
BY_NAME: Mapping[str, Decompositions] = {
    "depthwise_as_taps": {aten.convolution.default: depthwise_as_taps},
    "thin_product_as_sums": {aten.mm.default: thin_product_as_sums, aten.bmm.default: thin_product_as_sums},
}


def table_for(names: str) -> dict[OpOverload, Callable[..., Any]]:
    """What to give `run_decompositions` besides inductor's own, for names of BY_NAME with commas between."""
    table = dict(ALWAYS)
    for name in filter(None, names.split(",")):
        if name not in BY_NAME:
            raise CannotLift(f"no decomposition is named {name}")
        table |= BY_NAME[name]
    return table
