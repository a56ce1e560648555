"""Whether outputs are right on this very input.

The oracle is float64. The tolerance comes from honest variants run on the same input (honest.py): first the
plain native run; only if an output fails against that are the costlier variants run, which can only widen
it. Integers must be equal, except where honest variants themselves disagree (near-ties), and then only to a
value one of them gave, or to the place of an equal element (ties.py).

Not covered: statistical outputs (sampling, dropout); such a problem is reported as flawed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from assay.correctness.parts import Split, merged_parts
from assay.correctness.reference import Reference, tensors_of
from assay.correctness.ties import equal_places, equal_ranks
from assay.correctness.tolerance import FLOAT32_EPS, SHOWN, FloatTolerance, Report, unravel
from assay.problems import Instance, Precision
from assay.problems.values import canonical, flatten, unflatten
from assay.records.verdict import Mismatch


class Noise(NamedTuple):
    """Sizes of errors in units of the last place."""

    ulps: float
    low_ulps: float
    """Below float32 results are rounded from float32 ones: half a unit each, where float32 itself has
    functions that are good to two."""
    chain_ulps: float
    """Of one addition in a sum; roundings average a fifth of a unit, and the worst order has no luck."""


NARROW = Noise(1.25, 0.3, 0.5)
WIDE = Noise(16.0, 4.0, 2.0)
NARROW_RUNS = 3
OWN_ERROR_FACTOR = 4.0
"""Where torch itself is off by this much, another order of the same sums may be off by so many times that."""
WIDE_PAIRS = 2
"""Runs in mirrored pairs; a near-tie that no pair crosses is taken for an error, so one pair is too few."""
ROUNDED_ORACLE_FLOOR = 16.0
SAME_PRECISION_FLOOR = 64.0
"""A float64 specification is its own oracle: sums in sequence differ from it by many units."""


class Yardstick:
    """The oracle's outputs for one input, with tolerances found on demand."""

    def __init__(self, reference: Reference, inputs: list[Any], precision: Precision, seed: int) -> None:
        self._reference = reference
        self._inputs = inputs
        self._slack = precision.slack
        self._seed = seed
        self.oracle = as_real(reference.exact(inputs))
        self.native = as_real(tensors_of(reference.native(inputs)))
        floor = 1.0 if reference.oracle == "float64" else ROUNDED_ORACLE_FLOOR
        if any(t.dtype == torch.float64 for t in self.native):
            floor = SAME_PRECISION_FLOOR
        self._tolerances = [
            FloatTolerance(o, n.dtype, k, floor) if o.is_floating_point() else None
            for k, (o, n) in enumerate(zip(self.oracle, self.native, strict=True))
        ]
        self._variants: list[list[torch.Tensor]] = []
        self._level = -1

    def check(self, got: list[torch.Tensor], *, levels: tuple[int, ...] = (0, 1)) -> Report:
        """Judge outputs whose number, shapes and dtypes are already known to be right.

        Args:
            levels: 0 compares with the native run alone, 1 with every honest variant. An output that passes
                at 0 passes at 1.
        """
        got = as_real(got)
        *early, last = levels
        for level in early:
            self._raise_to(level)
            report = self._compare(got)
            if report.ok:
                return report
        self._raise_to(last)
        return self._compare(got)

    def _raise_to(self, level: int) -> None:
        if self._level < 0:
            self._level = 0
            self._learn(self.native, wide=False)
        if level >= 1 and self._level < 1:
            self._level = 1
            reordered = self._reference.reordered(self._inputs)
            self._learn(reordered, wide=False)
            # Fused operators (batch norm) err in common within, which noise on their results does not show.
            for variant in (self.native, reordered):
                for tolerance, tensor in zip(self._tolerances, as_real(variant), strict=True):
                    if tolerance is not None:
                        tolerance.learn_sensitivity(tensor, OWN_ERROR_FACTOR)
            for k in range(NARROW_RUNS):
                self._learn(self._noisy(NARROW, k, full_size=True), wide=False)
            for k, alike in enumerate((False, True) if self._reference.can_be_fused else ()):
                self._learn(self._fused(50 + k, alike=alike), wide=False)
            for k in range(WIDE_PAIRS):
                self._learn(self._noisy(WIDE, 100 + k), wide=True)
                self._learn(self._noisy(WIDE, 100 + k, sign=-1.0), wide=True)

    def _noisy(
        self, noise: Noise, k: int, *, sign: float = 1.0, full_size: bool = False
    ) -> list[torch.Tensor]:
        """Inputs are given exactly, whatever their dtype: only float32 arithmetic disturbs them."""
        unit = self._unit()
        arithmetic = sign * min(unit, FLOAT32_EPS)

        def amplitude(native: float) -> float:
            rounded = min(max(native, abs(arithmetic)), unit)
            return sign * rounded * (noise.ulps if rounded <= FLOAT32_EPS else noise.low_ulps)

        # One input of low precision lends no tolerance to what is computed and returned in a higher one.
        finer = any(t.is_floating_point() and torch.finfo(t.dtype).eps < unit for t in self.native)
        return self._reference.noisy(
            self._inputs,
            amplitude(unit),
            self._seed + k,
            amplitude_of=amplitude if finer else None,
            input_amplitude=noise.ulps * arithmetic,
            chain_amplitude=noise.chain_ulps * arithmetic,
            full_size=full_size,
        )

    def _fused(self, k: int, *, alike: bool) -> list[torch.Tensor]:
        """As one kernel would: in float32, but for what it stores, which is as fine as the finest output."""
        stored = min((torch.finfo(t.dtype).eps for t in self.native if t.is_floating_point()), default=0.0)
        arithmetic = min(self._unit(), FLOAT32_EPS)
        return self._reference.noisy(
            self._inputs,
            NARROW.ulps * arithmetic,
            self._seed + k,
            input_amplitude=NARROW.ulps * arithmetic,
            chain_amplitude=NARROW.chain_ulps * arithmetic,
            full_size=True,
            stored_amplitude=stored * (NARROW.ulps if stored <= FLOAT32_EPS else NARROW.low_ulps),
            alike=alike,
        )

    def _unit(self) -> float:
        """Rounding unit of the lowest floating precision among inputs and outputs."""
        floats = [t.dtype for t in [*self.native, *tensors_of(self._inputs)] if t.is_floating_point()]
        return max((torch.finfo(d).eps for d in floats), default=FLOAT32_EPS)

    def _learn(self, variant: list[torch.Tensor], *, wide: bool) -> None:
        variant = as_real(variant)
        keep = [
            t if tolerance is None else None for t, tolerance in zip(variant, self._tolerances, strict=True)
        ]
        self._variants.append([t if t is not None else torch.empty(0) for t in keep])
        for tolerance, tensor in zip(self._tolerances, variant, strict=True):
            if tolerance is not None:
                (tolerance.learn_sensitivity if wide else tolerance.learn)(tensor)

    def _compare(self, got: list[torch.Tensor]) -> Report:
        reports = []
        for k, (out, oracle, tolerance) in enumerate(zip(got, self.oracle, self._tolerances, strict=True)):
            if tolerance is not None:
                reports.append(tolerance.compare(out, self._slack))
            else:
                report = _compare_exactly(k, out, oracle, [v[k] for v in self._variants])
                if not report.ok and self._level >= 1:
                    named = self._equal_places(k, out)
                    # Places are right together or not at all; variants excuse elements one by one.
                    if (named & (out != oracle)).any():
                        report = _compare_exactly(k, out.where(~named, oracle), oracle, [])
                reports.append(report)
        return _merged(reports)

    def _equal_places(self, output: int, got: torch.Tensor) -> torch.Tensor:
        tensors: list[torch.Tensor] = []
        tree = flatten(self._inputs, tensors)

        def ask(others: list[torch.Tensor]) -> torch.Tensor:
            return as_real(self._reference.exact(unflatten(tree, others)))[output]

        equal = equal_places(got, self.oracle[output], tensors, ask)
        return equal | equal_ranks(got, self.native[output], self._reference.rankings(self._inputs))


class TaskYardstick:
    """The same question put to a task that brings its own check, such as KernelBot's."""

    def __init__(
        self, reference: Reference, inputs: list[Any], check: Callable[[list[Any], Any], str | None]
    ) -> None:
        value = reference.native(inputs)
        self._tree = flatten(canonical(value), [])
        self._inputs = inputs
        self._check = check
        self.oracle = self.native = tensors_of(value)

    def check(self, got: list[torch.Tensor], *, levels: tuple[int, ...] = (0, 1)) -> Report:
        del levels  # the task knows one tolerance
        complaint = self._check(self._inputs, unflatten(self._tree, got))
        count = sum(t.numel() for t in got)
        ratio = math.inf if complaint else 0.0
        return Report(complaint is None, ratio, 0, count, (complaint or "")[:2000], ())


def make_yardstick(
    reference: Reference, instance: Instance, inputs: list[Any], precision: Precision, seed: int
) -> Yardstick | TaskYardstick:
    check = instance.task_check()
    if check is None:
        return Yardstick(reference, inputs, precision, seed)
    return TaskYardstick(reference, inputs, check)


def check_outputs(
    reference: Reference,
    instance: Instance,
    inputs: list[Any],
    precision: Precision,
    seed: int,
    got: list[torch.Tensor],
    split: Split | None,
    share: float = 1.0,
) -> Report:
    """Outputs of the right form against the oracle, in parts where the case falls into parts.

    With a `share` below one only so many of the parts, drawn now.

    What is not right at once is looked at in parts in any case: honest variants take many times the memory.
    """
    if split is None:
        return make_yardstick(reference, instance, inputs, precision, seed).check(got)

    def look(rows: slice, levels: tuple[int, ...]) -> tuple[int, Report]:
        yardstick = Yardstick(reference, split.of_inputs(inputs, rows), precision, seed)
        return rows.start, yardstick.check([t[rows] for t in got], levels=levels)

    reports: list[tuple[int, Report]] = []
    for glance in split.glances(share):
        first = look(glance, (0,))
        if first[1].ok:
            reports.append(first)
            continue
        for rows in split.parts(glance):
            reports.append(look(rows, (0, 1)))
            if not reports[-1][1].ok:
                return merged_parts(reports)  # each further one that is wrong costs as much as ten right ones
    return merged_parts(reports)


def as_real(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Complex tensors as pairs of real numbers."""
    return [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in tensors]


def _compare_exactly(
    output: int, got: torch.Tensor, oracle: torch.Tensor, variants: list[torch.Tensor]
) -> Report:
    """Integers and booleans: equal, or equal to what an honest variant gave there."""
    wrong = got != oracle
    for variant in variants:
        wrong &= got != variant
    count = int(wrong.sum())
    mismatches = []
    for at in torch.nonzero(wrong.flatten()).flatten()[:SHOWN].tolist():
        values = (float(oracle.flatten()[at]), float(got.flatten()[at]), 0.0)
        mismatches.append(Mismatch(output, unravel(at, oracle.shape), *values))
    message = f"{count} of {oracle.numel()} elements differ" if count else ""
    return Report(not count, math.inf if count else 0.0, count, oracle.numel(), message, tuple(mismatches))


def _merged(reports: list[Report]) -> Report:
    failing = [(k, r) for k, r in enumerate(reports) if not r.ok]
    prefix = "output {}: " if len(reports) > 1 else ""
    return Report(
        ok=not failing,
        worst_ratio=max((r.worst_ratio for r in reports), default=0.0),
        wrong_elements=sum(r.wrong_elements for r in reports),
        elements=sum(r.elements for r in reports),
        message="; ".join(prefix.format(k) + r.message for k, r in failing),
        mismatches=tuple(m for _, r in failing for m in r.mismatches)[:SHOWN],
    )
