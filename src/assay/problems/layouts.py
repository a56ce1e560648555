"""The same values laid out differently in memory: strided, offset, transposed, sliced, or each its own way.

`arrange` says how in plain numbers; the judge lays inputs out for candidates by it, and `lay_out` makes a
tensor by it to see whether the reference itself accepts a layout. Not covered: overlapping or negative
strides, and storage shared between inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from assay.problems.problem import LAYOUTS
from assay.records.errors import UserError

_ONE_OF_EACH = ("offset", "strided", "given", "sliced", "transposed")


def nth_layout(layout: str, k: int) -> str:
    """The layout of the k-th input: under "mixed" each has its own, so that none tells another's strides."""
    return _ONE_OF_EACH[k % len(_ONE_OF_EACH)] if layout == "mixed" else layout


class Arrangement(NamedTuple):
    """Strides, and the elements left free before the first one."""

    strides: tuple[int, ...]
    lead: int


def arrange(tensor: torch.Tensor, layout: str) -> Arrangement:
    """How a tensor's values lie under a layout; one that needs more dimensions changes nothing."""
    shape = tuple(tensor.shape)
    dense = dense_strides(shape)
    if layout not in LAYOUTS:
        raise UserError(f"unknown layout '{layout}': use one of {', '.join(LAYOUTS)}")
    if layout == "strided" and shape:
        # Every other element of a wider buffer; the odd padding keeps rows from merging into one long row.
        rows = dense_strides((*shape[:-1], 2 * shape[-1] + 3))
        return Arrangement((*rows[:-1], 2), 0)
    if layout == "offset" and shape:
        # One element in: the pointer loses the alignment that vector loads need.
        return Arrangement(dense, 1)
    if layout == "transposed" and len(shape) >= 2:
        swapped = dense_strides((*shape[:-2], shape[-1], shape[-2]))
        return Arrangement((*swapped[:-2], swapped[-1], swapped[-2]), 0)
    if layout == "sliced" and len(shape) >= 2:
        # Every other one of a larger batch: each is dense, the next does not begin where it ends.
        return Arrangement((2 * dense[0], *dense[1:]), 0)
    return Arrangement(tuple(tensor.stride()), 0)


def lay_out(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """A tensor equal to `tensor` in the named layout."""
    if layout == "given":
        return tensor
    strides, lead = arrange(tensor, layout)
    storage = tensor.new_zeros(lead + span(tensor.shape, strides))
    if tensor.is_floating_point() and tensor.element_size() > 1:
        # The gaps are NaN so that code which ignores strides cannot come out nearly right.
        storage.fill_(float("nan"))
    return storage.as_strided(tensor.shape, strides, lead).copy_(tensor)


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last one addressed."""
    if any(n == 0 for n in shape):
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def own_strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """A tensor's strides where its elements fill their memory in some order of the axes; else row-major."""
    step = 1
    for stride, n in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if n != 1:
            if stride != step:
                return dense_strides(tensor.shape)
            step *= n
    return tuple(tensor.stride())


def same_order(shape: Sequence[int], one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two sets of strides mean the same places."""
    return all(n == 1 or a == b for n, a, b in zip(shape, one, other, strict=True))


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))
