"""An input that is nearly the last one: a handful of elements changed, everything else equal.

A memo keyed on a checksum, a prefix or a sample of the contents takes it for the old input and answers with
the old output, which is wrong where the changed elements matter. Not covered: integer inputs, whose values
may have to agree with each other.
"""

from __future__ import annotations

import random
from collections.abc import Container
from typing import Any

import torch

from assay.problems.values import flatten, unflatten

TOUCHED_ELEMENTS = 4
MANY, SPIKE = 1 << 20, 256.0
"""Whoever answers from a sample of so many elements misses a few large ones."""


def touched(inputs: list[Any], fresh: list[Any], seed: int, kept: Container[int] = frozenset()) -> list[Any]:
    """A copy of `inputs` in which a few elements of each floating tensor come from `fresh`, enlarged
    where there are many; tensors whose numbers are in `kept` obey a rule, and stay."""
    rng = random.Random(seed)
    mine: list[torch.Tensor] = []
    theirs: list[torch.Tensor] = []
    tree = flatten(inputs, mine)
    flatten(fresh, theirs)
    pairs = enumerate(zip(mine, theirs, strict=True))
    return unflatten(tree, [a if k in kept else _mixed(a, b, rng) for k, (a, b) in pairs])


def one_changed(
    inputs: list[Any], fresh: list[Any], turn: int, kept: Container[int] = frozenset()
) -> list[Any] | None:
    """`inputs` with one of its tensors from `fresh`, each in its turn; None where there is but one.

    A memo keyed on some of the inputs answers for all of them.
    """
    mine: list[torch.Tensor] = []
    theirs: list[torch.Tensor] = []
    tree = flatten(inputs, mine)
    flatten(fresh, theirs)
    if len(mine) < 2 or not all(t.is_floating_point() for t in mine):
        return None
    if any(a.shape != b.shape for a, b in zip(mine, theirs, strict=True)):
        return None
    free = [k for k in range(len(mine)) if k not in kept]
    if not free:
        return None
    which = free[turn % len(free)]
    changed: list[Any] = unflatten(tree, [*mine[:which], theirs[which], *mine[which + 1 :]])
    return changed


def _mixed(tensor: torch.Tensor, other: torch.Tensor, rng: random.Random) -> torch.Tensor:
    if not tensor.is_floating_point() or tensor.shape != other.shape or tensor.numel() == 0:
        return tensor
    mixed = tensor.clone()
    for _ in range(TOUCHED_ELEMENTS):
        index = tuple(rng.randrange(n) for n in tensor.shape)
        mixed[index] = other[index]
        if tensor.numel() >= MANY and tensor.itemsize > 1:  # eight bits hold no number as large
            mixed[index] *= SPIKE
    return mixed
