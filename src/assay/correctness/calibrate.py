"""Can this case tell right from wrong? Asked of the case itself, before any candidate is.

Honest variants set the tolerance (yardstick.py); mutants must fall outside it. A case on which zeros, a
constant, a stale answer, a dropped tail or a scaled result would pass is no correctness case, and a problem
with no other cases is flawed.

Not covered: mutants of the algorithm beyond lower precision and linearised activations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from assay.correctness.fingerprint import Fingerprinter
from assay.correctness.mutants import PRECISION, REQUIRED, mutate
from assay.correctness.parts import Split, find_split
from assay.correctness.reference import UNSUPPORTED, Reference, tensors_of
from assay.correctness.tolerance import FloatTolerance
from assay.correctness.yardstick import TaskYardstick, Yardstick, as_real, make_yardstick
from assay.problems import Instance, Precision
from assay.problems.layouts import own_strides
from assay.problems.nests import map_tensors
from assay.problems.values import canonical, dtype_name, flatten, skeleton, unflatten
from assay.records.errors import UserError

LARGE_BYTES = 1 << 29
"""Above this, mutants are held against a 16 times wider tolerance instead of one learned from many runs."""
_LARGE_SLACK = 16.0
_ATOMICS_FLOOR = 64.0
_ATOMICS_TIES = 0.01


GRADIENTS_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class Calibration:
    """What is known about a case before a candidate runs on it."""

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    structure: Any
    """How the outputs nest (`values.skeleton`)."""
    written: tuple[int, ...] = ()
    """Inputs into which the specification itself writes, so a candidate may."""
    lent: tuple[int, ...] = ()
    """Outputs that are memory of an input in the specification itself (a view, say), so they may be."""
    input_bytes: int = 0
    strides: tuple[tuple[int, ...], ...] = ()
    """How the specification's outputs lie in memory; row-major where they leave gaps."""
    lazy: tuple[bool, ...] = ()
    """Outputs that the specification itself returns as expanded views."""
    gradients: bool = True
    """The specification can be called while gradients are recorded; not tried where it is large."""
    split: Split | None = None
    """How to compare it in parts, where it is large and falls into parts."""
    survivors: tuple[str, ...] = ()
    """Required mutants that would pass here: the case cannot tell them from right answers."""
    unseen: tuple[str, ...] = ()
    """Precision mutants that would pass here."""
    undecidable: tuple[int, ...] = ()
    """Outputs that may be replaced alone by those of another input, or by zeros, without being noticed."""
    dead_inputs: tuple[int, ...] = ()
    """Inputs whose contents do not matter."""
    random: bool = False
    """The specification does not agree with itself on one input."""
    oracle: str = "float64"

    @property
    def discriminates(self) -> bool:
        return not self.survivors and not self.random


def calibrate(
    instance: Instance, precision: Precision, device: torch.device, seeds: tuple[int, int, int]
) -> Calibration:
    """Run the specification, its honest variants and its mutants on one case."""
    reference = Reference(instance, precision, device, seeds[0])
    inputs = instance.make_inputs(seeds[1], device)
    fingerprinter = Fingerprinter(device)
    before = _fingerprints(fingerprinter, inputs)
    outputs: list[torch.Tensor] = []
    tree = flatten(canonical(reference.native(inputs, in_place=True)), outputs)
    if kinds := {"str", "dtype", "device"} & set(_kinds(skeleton(tree))):
        raise UserError(f"the specification returns a {min(kinds)}, which cannot be judged: return tensors")
    after = _fingerprints(fingerprinter, inputs)
    written = {k for k, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]}
    places = [t.untyped_storage().data_ptr() for t in _tensors(inputs)]
    if any(places.count(places[k]) > 1 for k in written):
        raise UserError("the specification writes into an input that shares memory with another one")
    lent = [k for k, t in enumerate(outputs) if not _storages([t]).isdisjoint(_storages(_tensors(inputs)))]
    if written:
        inputs = instance.make_inputs(seeds[1], device)
    known = Calibration(
        shapes=tuple(tuple(t.shape) for t in outputs),
        dtypes=tuple(dtype_name(t.dtype) for t in outputs),
        structure=skeleton(tree),
        written=tuple(sorted(written)),
        lent=tuple(lent),
        input_bytes=sum(t.numel() * t.element_size() for t in _tensors(inputs)),
        strides=tuple(own_strides(t) for t in outputs),
        lazy=tuple(any(s == 0 and n > 1 for n, s in zip(t.shape, t.stride(), strict=True)) for t in outputs),
        gradients=_bytes(inputs) > GRADIENTS_BYTES or reference.takes_gradients(inputs),
        split=None if instance.task_check() else find_split(reference, inputs, outputs),
    )
    del outputs, tree
    inputs = _first_part(inputs, known.split)
    others = _first_part(instance.make_inputs(seeds[2], device), known.split)
    trials = _trials(reference, instance, precision, inputs, others, seeds[2], written)
    return dataclasses.replace(known, **trials._asdict(), oracle=reference.oracle)


def _first_part(inputs: list[Any], split: Split | None) -> list[Any]:
    """What large cases are calibrated on; a copy, so that the rest can go."""
    if split is None:
        return inputs
    part: list[Any] = map_tensors(split.of_inputs(inputs, next(split.parts())), torch.clone)
    return part


class _Trials(NamedTuple):
    """What the mutants of one case showed."""

    survivors: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    undecidable: tuple[int, ...] = ()
    dead_inputs: tuple[int, ...] = ()
    random: bool = False


def _trials(
    reference: Reference,
    instance: Instance,
    precision: Precision,
    inputs: list[Any],
    others: list[Any],
    seed: int,
    written: Container[int],
) -> _Trials:
    large = _bytes(inputs) > LARGE_BYTES
    if large:
        precision = dataclasses.replace(precision, slack=precision.slack * _LARGE_SLACK)
    levels = (0,) if large else (1,)
    yardstick = make_yardstick(reference, instance, inputs, precision, seed)
    if not any(t.numel() for t in yardstick.oracle):
        return _Trials()
    again = as_real(tensors_of(reference.native(inputs)))
    random = not yardstick.check(again, levels=levels).ok
    if isinstance(yardstick, Yardstick):
        # Honest variants of a random specification differ as much as its runs do, so they cannot show it.
        random |= any(map(_disagree, yardstick.native, again))
    right = [o.to(n.dtype) for o, n in zip(yardstick.oracle, yardstick.native, strict=True)]
    stale = as_real(tensors_of(reference.native(others)))
    survivors = []
    for name in REQUIRED:  # one at a time: outputs have gigabytes
        wrong = mutate(name, right, stale)
        if wrong is not None and _same_form(wrong, right) and yardstick.check(wrong, levels=levels).ok:
            survivors.append(name)
        del wrong
    if large:
        return _Trials(tuple(survivors), random=random)
    unseen = []
    for name in PRECISION:
        wrong = _attempt(reference, name, inputs)
        if wrong is not None and yardstick.check(wrong, levels=levels).ok:
            unseen.append(name)
    return _Trials(
        survivors=tuple(survivors),
        unseen=tuple(unseen),
        undecidable=_undecidable(yardstick, right, stale),
        dead_inputs=_dead_inputs(reference, yardstick, inputs, others, right, written),
        random=random,
    )


def _undecidable(
    yardstick: Yardstick | TaskYardstick, right: list[torch.Tensor], stale: list[torch.Tensor]
) -> tuple[int, ...]:
    """Outputs, one of several, that may be anything at all."""
    found = []
    for k in range(len(right) if len(right) > 1 and _same_form(stale, right) else 0):
        wrong = ([*right[:k], bad, *right[k + 1 :]] for bad in (stale[k], torch.zeros_like(right[k])))
        if right[k].numel() and all(yardstick.check(outputs, levels=(1,)).ok for outputs in wrong):
            found.append(k)
    return tuple(found)


def _disagree(first: torch.Tensor, again: torch.Tensor) -> bool:
    """Whether two runs differ by more than atomic additions in another order would make them."""
    if first.is_floating_point():
        # Where terms cancel, little is left, and it differs by what the terms do.
        tolerance = FloatTolerance(first.double(), first.dtype, 0, _ATOMICS_FLOOR, by_size=False)
        return not tolerance.compare(again, 1.0).ok
    return float((first != again).double().mean()) > _ATOMICS_TIES


def _attempt(reference: Reference, name: str, inputs: list[Any]) -> list[torch.Tensor] | None:
    try:
        return reference.downgraded(inputs) if name == "downgraded" else reference.linearised(inputs)
    except UNSUPPORTED:
        return None  # the module cannot run that way: nothing to hold against it


def _dead_inputs(
    reference: Reference,
    yardstick: Yardstick | TaskYardstick,
    inputs: list[Any],
    others: list[Any],
    right: list[torch.Tensor],
    written: Container[int],
) -> tuple[int, ...]:
    """Inputs that may be swapped for others without the answer leaving its tolerance; one that is written
    into may be there for the answer alone."""
    mine: list[torch.Tensor] = []
    tree = flatten(inputs, mine)
    theirs = _tensors(others)
    dead = []
    for k, (tensor, other) in enumerate(zip(mine, theirs, strict=True)):
        if tensor.numel() == 0:
            dead.append(k)  # nothing in it could matter: it must not outvote the other cases
            continue
        if k in written or tensor.shape != other.shape or torch.equal(tensor, other):
            continue
        mixed = [other if j == k else t for j, t in enumerate(mine)]
        exact = as_real(reference.exact(unflatten(tree, mixed)))
        moved = [o.to(r.dtype) for o, r in zip(exact, right, strict=True)]
        if _same_form(moved, right) and yardstick.check(moved, levels=(1,)).ok:
            dead.append(k)
    return tuple(dead)


def _kinds(structure: Any) -> list[str]:
    if isinstance(structure, str):
        return [structure]
    items = structure if isinstance(structure, list) else [pair[1] for pair in structure["dict"]]
    return [kind for item in items for kind in _kinds(item)]


def _storages(tensors: list[torch.Tensor]) -> set[int]:
    return {t.untyped_storage().data_ptr() for t in tensors if t.numel()}


def _fingerprints(fingerprinter: Fingerprinter, inputs: list[Any]) -> list[int]:
    return [fingerprinter.of(t.contiguous().reshape(-1).view(torch.uint8)) for t in _tensors(inputs)]


def _tensors(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    flatten(value, found)
    return found


def _bytes(value: Any) -> int:
    return sum(t.numel() * t.element_size() for t in _tensors(value))


def _same_form(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(x.shape == y.shape for x, y in zip(a, b, strict=True))
