"""Places of equal elements: any of them is the place of the third, or of the fifth.

An output of integers may name several places in each row of an input (top-k, sort). Where elements are equal
an honest kernel may name another place than the reference, one of more than any number of honest variants
would show. Whether it names places is tried: equal elements are told apart by next to nothing, the input is
turned by one along a dimension, and the places have to follow. Then every place of an equal element counts as
right, as long as none is named twice where the oracle names none twice.

Scores that are computed are seen where the specification ranks them. They tie in its own precision, where an
exact answer would not: who names a place of the same score there is as right as the specification itself.

Not covered: one place in each row, of which torch promises the first (argmax); the order that a stable sort
promises; places that were computed with after they were found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from assay.correctness.modes import DispatchMode
from assay.correctness.recipes import name_of

UNTYING = 1e-13
"""Of the largest element: less than float32 can tell, more than float64 rounds."""

Tensors = list[torch.Tensor]


class Ranking(NamedTuple):
    """Scores that were ranked along a dimension, and the places that were found."""

    scores: torch.Tensor
    dim: int
    places: torch.Tensor


class Rankings(DispatchMode):
    """Note what is ranked."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Ranking] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if name_of(func) in ("topk", "sort") and args[0].dim():
            names = [argument.name for argument in func._schema.arguments]
            given = {**dict(zip(names, args, strict=False)), **(kwargs or {})}
            self.seen.append(Ranking(args[0], given.get("dim", -1) % args[0].dim(), out[1]))
        return out


def equal_ranks(got: torch.Tensor, native: torch.Tensor, rankings: list[Ranking]) -> torch.Tensor:
    """Where `got` names a place whose score is that of the place which the specification names there."""
    excused = torch.zeros_like(got, dtype=torch.bool)
    for scores, dim, places in rankings:
        if places.dim() != native.dim() or places.shape[dim] < native.shape[dim]:
            continue
        if torch.equal(places.narrow(dim, 0, native.shape[dim]), native.long()):
            excused |= _same_elements(scores, dim, got, native)
    return excused


def equal_places(
    got: torch.Tensor, oracle: torch.Tensor, inputs: Tensors, ask: Callable[[Tensors], torch.Tensor]
) -> torch.Tensor:
    """Where `got` names the same place as the oracle, or that of an equal element.

    Args:
        ask: this output of the specification, for other inputs.
    """
    excused = got == oracle
    readings = [(k, dim) for k, tensor in enumerate(inputs) for dim in _dims_named(tensor, oracle)]
    if not readings:
        return excused
    untied = [_told_apart(tensor) for tensor in inputs]
    before = ask(untied)
    for k, dim in readings:
        turned = [*untied[:k], untied[k].roll(1, dim), *untied[k + 1 :]]
        if torch.equal(_named(untied[k], dim, before), _named(turned[k], dim, ask(turned))):
            excused |= _same_elements(inputs[k], dim, got, oracle)
    return excused


def _told_apart(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point() or not tensor.numel():
        return tensor
    wide = tensor.double()
    largest = wide.nan_to_num(0.0, 0.0, 0.0).abs().amax()
    return wide + torch.rand_like(wide) * (UNTYING * largest)


def _dims_named(tensor: torch.Tensor, places: torch.Tensor) -> list[int]:
    """Dimensions of the tensor in which the integers may be places, by shape and range.

    Elements that cannot be told apart (masks, integers) would make every place seem right.
    """
    if not tensor.is_floating_point():
        return []
    if not places.numel() or places.dtype not in (torch.int64, torch.int32) or int(places.min()) < 0:
        return []
    if places.dim() != tensor.dim():
        return []
    dims = []
    for dim, size in enumerate(tensor.shape):
        others = [d for d in range(tensor.dim()) if d != dim]
        fits = all(places.shape[d] == tensor.shape[d] for d in others)
        if fits and places.shape[dim] > 1 and int(places.max()) < size:
            dims.append(dim)
    return dims


def _named(tensor: torch.Tensor, dim: int, places: torch.Tensor) -> torch.Tensor:
    """The elements at those places; nothing at all equals what lies outside."""
    inside = (places >= 0) & (places < tensor.shape[dim])
    return tensor.gather(dim, places.where(inside, 0).long()).double().where(inside, torch.nan)


def _same_elements(tensor: torch.Tensor, dim: int, got: torch.Tensor, oracle: torch.Tensor) -> torch.Tensor:
    same = _named(tensor, dim, got) == _named(tensor, dim, oracle)
    return same & (_distinct(got, dim) | ~_distinct(oracle, dim))


def _distinct(places: torch.Tensor, dim: int) -> torch.Tensor:
    """For each row, whether no place is named twice."""
    return (places.sort(dim).values.diff(dim=dim) != 0).all(dim, keepdim=True)
