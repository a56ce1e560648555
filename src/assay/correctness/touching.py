"""An input that is nearly the last one: a handful of elements changed, everything else equal.

A memo keyed on a checksum, a prefix or a sample of the contents takes it for the old input and answers with
the old output, which is wrong where the changed elements matter. Not covered: integer inputs, whose values
may have to agree with each other.
"""

from __future__ import annotations

import random
from typing import Any

import torch

from assay.problems.values import flatten, unflatten

TOUCHED_ELEMENTS = 4


def touched(inputs: list[Any], fresh: list[Any], seed: int) -> list[Any]:
    """A copy of `inputs` in which a few elements of each floating tensor come from `fresh`."""
    rng = random.Random(seed)
    mine: list[torch.Tensor] = []
    theirs: list[torch.Tensor] = []
    tree = flatten(inputs, mine)
    flatten(fresh, theirs)
    return unflatten(tree, [_mixed(a, b, rng) for a, b in zip(mine, theirs, strict=True)])


def _mixed(tensor: torch.Tensor, other: torch.Tensor, rng: random.Random) -> torch.Tensor:
    if not tensor.is_floating_point() or tensor.shape != other.shape or tensor.numel() == 0:
        return tensor
    mixed = tensor.clone()
    for _ in range(TOUCHED_ELEMENTS):
        index = tuple(rng.randrange(n) for n in tensor.shape)
        mixed[index] = other[index]
    return mixed
