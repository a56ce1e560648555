"""How far an output may be from the oracle on this very input, and whether it is.

The oracle is float64. The tolerance comes from honest variants run on the same input (honest.py): first the
plain native run; only if an output fails against that are the costlier variants run, which can only widen
it. Two tests must both hold, for every output, on every element:

  element  |got - oracle| <= 4 ulp + 12 x (honest error of its tile) + its own sensitivity to rounding
  tile     rms(got - oracle) <= 3 x (honest rms error of that tile)

The element test is moderate and catches anything local; the tile test is tight and catches a lower precision
or a structured cluster of small errors. A tile is a short run of neighbouring elements, so rows of different
magnitude do not lend each other tolerance. Integers must be equal, except where honest variants themselves
disagree (near-ties), and then only to a value one of them gave.

Not covered: statistical outputs (sampling, dropout); such a problem is reported as flawed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from assay.correctness.reference import Reference, tensors_of
from assay.problems import Instance, Precision
from assay.problems.values import flatten, unflatten
from assay.records.verdict import Mismatch

ULP_FACTOR = 4.0
TILE_TO_ELEMENT = 12.0
TILE_FACTOR = 3.0
NARROW_ULPS = 2.0
WIDE_ULPS = 16.0
WIDE_RUNS = 3
BLOCK_ELEMENTS = 1 << 25
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one comparison."""

    ok: bool
    worst_ratio: float
    wrong_elements: int
    elements: int
    message: str
    mismatches: tuple[Mismatch, ...]


@dataclass(slots=True)
class _Scale:
    """What honest variants differ by from the oracle, for one output."""

    tile: int
    honest_rms: torch.Tensor
    sensitivity: torch.Tensor | None = None
    """Largest deviation of the widely disturbed runs, element by element."""
    loose: torch.Tensor | None = None
    """Where an honest run is not finite although the oracle is."""


class Yardstick:
    """The oracle's outputs for one input, with tolerances found on demand."""

    def __init__(self, reference: Reference, inputs: list[Any], precision: Precision, seed: int) -> None:
        self._reference = reference
        self._inputs = inputs
        self._slack = precision.slack
        self._seed = seed
        self.oracle = reference.exact(inputs)
        self.native = tensors_of(reference.native(inputs))
        self._scales = [_blank_scale(o) for o in self.oracle]
        self._alternatives: list[list[torch.Tensor]] = []
        self._level = -1

    def check(self, got: list[torch.Tensor], *, levels: tuple[int, ...] = (0, 1)) -> Report:
        """Judge outputs whose number, shapes and dtypes are already known to be right.

        Args:
            levels: 0 compares with the native run alone, 1 with every honest variant. An output that passes
                at 0 passes at 1.
        """
        for level in levels:
            self._raise_to(level)
            report = self._compare(got)
            if report.ok:
                return report
        return report

    def _raise_to(self, level: int) -> None:
        if self._level < 0:
            self._level = 0
            self._learn(self.native)
        if level >= 1 and self._level < 1:
            self._level = 1
            self._learn(self._reference.reordered(self._inputs))
            for k in range(2):
                self._learn(self._noisy(NARROW_ULPS, k))
            for k in range(WIDE_RUNS):
                self._learn_sensitivity(self._noisy(WIDE_ULPS, 100 + k))

    def _noisy(self, ulps: float, k: int) -> list[torch.Tensor]:
        return self._reference.noisy(self._inputs, ulps * self._unit(), self._seed + k)

    def _unit(self) -> float:
        """Unit roundoff of the lowest floating precision the native run delivers."""
        floats = [t.dtype for t in [*self.native, *tensors_of(self._inputs)] if t.is_floating_point()]
        return max((torch.finfo(d).eps for d in floats), default=2.0**-23)

    def _learn(self, variant: list[torch.Tensor]) -> None:
        self._alternatives.append(variant)
        for scale, oracle, other in zip(self._scales, self.oracle, variant, strict=True):
            if not oracle.is_floating_point():
                continue
            for block, tiles in _blocks(oracle, scale.tile):
                error = other.flatten()[block].double() - oracle.flatten()[block]
                strange = ~torch.isfinite(error) & torch.isfinite(oracle.flatten()[block])
                if strange.any():
                    if scale.loose is None:
                        scale.loose = torch.zeros(oracle.numel(), dtype=torch.bool, device=oracle.device)
                    scale.loose[block] |= strange
                rms = _tile_rms(torch.nan_to_num(error, 0.0, 0.0, 0.0), scale.tile)
                scale.honest_rms[tiles] = torch.maximum(scale.honest_rms[tiles], rms)

    def _learn_sensitivity(self, variant: list[torch.Tensor]) -> None:
        self._alternatives.append(variant)
        for scale, oracle, other in zip(self._scales, self.oracle, variant, strict=True):
            if not oracle.is_floating_point():
                continue
            if scale.sensitivity is None:
                scale.sensitivity = torch.zeros(oracle.numel(), dtype=torch.float32, device=oracle.device)
            for block, _tiles in _blocks(oracle, scale.tile):
                deviation = (other.flatten()[block].double() - oracle.flatten()[block]).abs()
                deviation = torch.nan_to_num(deviation, 0.0, 0.0, 0.0).float()
                scale.sensitivity[block] = torch.maximum(scale.sensitivity[block], deviation)

    def _compare(self, got: list[torch.Tensor]) -> Report:
        reports = []
        for k, (out, oracle, scale) in enumerate(zip(got, self.oracle, self._scales, strict=True)):
            if oracle.is_floating_point():
                reports.append(self._compare_floats(k, out, oracle, scale))
            else:
                others = [variant[k] for variant in self._alternatives]
                reports.append(_compare_integers(k, out, oracle, others))
        return _merged(reports)

    def _compare_floats(self, k: int, got: torch.Tensor, oracle: torch.Tensor, scale: _Scale) -> Report:
        info = torch.finfo(self.native[k].dtype)
        floor = 16.0 if self._reference.oracle != "float64" else 1.0
        bad, worst, mismatches, bad_tiles = 0, 0.0, [], 0
        for block, tiles in _blocks(oracle, scale.tile):
            o = oracle.flatten()[block]
            g = got.flatten()[block].double()
            rounded = o.to(self.native[k].dtype).double()
            special = ~torch.isfinite(rounded)
            same = torch.where(torch.isnan(rounded), torch.isnan(g), g == rounded)
            error = torch.where(special, 0.0, (g - o).abs())
            o_safe = torch.where(special, 0.0, o)
            unit = info.eps * _tile_rms(o_safe, scale.tile) * floor
            allowance = scale.honest_rms[tiles] + (0.5 + 8 / math.sqrt(min(scale.tile, o.numel()))) * unit
            limit = ULP_FACTOR * info.eps * o_safe.abs() + info.smallest_normal
            limit = limit + TILE_TO_ELEMENT * allowance.repeat_interleave(scale.tile)[: o.numel()]
            if scale.sensitivity is not None:
                limit = limit + scale.sensitivity[block]
            limit = limit * self._slack
            wrong = torch.where(special, ~same, ~(error <= limit))
            if scale.loose is not None:
                wrong &= ~(scale.loose[block] & ~torch.isfinite(g))
            tile_limit = self._slack * (TILE_FACTOR * allowance + info.smallest_normal)
            if scale.sensitivity is not None:
                # Near-ties flip by whole steps; their tiles are held by the element test alone.
                jumps = scale.sensitivity[block].double() > 64 * (limit - scale.sensitivity[block])
                error = torch.where(jumps, 0.0, error)
            tile_ratio = _tile_rms(torch.nan_to_num(error, 0.0, math.inf, math.inf), scale.tile) / tile_limit
            ratio = torch.where(special, same.logical_not().double() * math.inf, error / limit).nan_to_num(math.inf)
            bad += int(wrong.sum())
            bad_tiles += int((tile_ratio > 1).sum())
            worst = max(worst, _largest(torch.where(wrong, ratio, ratio.clamp(max=1.0))), _largest(tile_ratio))
            if len(mismatches) < SHOWN:
                suspects = wrong | (tile_ratio > 1).repeat_interleave(scale.tile)[: o.numel()]
                room = SHOWN - len(mismatches)
                mismatches += _mismatches(k, suspects, block.start, oracle.shape, o, g, limit, room)
        message = _describe(bad, bad_tiles, oracle.numel(), scale.tile)
        return Report(not message, worst, bad, oracle.numel(), message, tuple(mismatches) if message else ())


class TaskYardstick:
    """The same question put to a task that brings its own check, such as KernelBot's."""

    def __init__(self, reference: Reference, inputs: list[Any], check: Callable[[list[Any], Any], str | None]) -> None:
        value = reference.native(inputs)
        tensors: list[torch.Tensor] = []
        self._tree = flatten(value, tensors)
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


def _blank_scale(oracle: torch.Tensor) -> _Scale:
    last = oracle.shape[-1] if oracle.dim() else 1
    tile = last if 64 <= last <= 1024 else (1024 if last > 1024 else 256)
    tile = max(1, min(tile, oracle.numel()))
    count = -(-oracle.numel() // tile)
    return _Scale(tile, torch.zeros(count, dtype=torch.float64, device=oracle.device))


def _blocks(tensor: torch.Tensor, tile: int) -> Iterator[tuple[slice, slice]]:
    """Runs of whole tiles small enough to hold several float64 copies of."""
    per_block = max(1, BLOCK_ELEMENTS // tile)
    for first in range(0, -(-tensor.numel() // tile), per_block):
        last = min(first + per_block, -(-tensor.numel() // tile))
        yield slice(first * tile, min(last * tile, tensor.numel())), slice(first, last)


def _tile_rms(values: torch.Tensor, tile: int) -> torch.Tensor:
    """Root mean square of each tile; the last one counts only the elements it has."""
    whole = values.numel() // tile * tile
    rms = values[:whole].reshape(-1, tile).square().mean(-1).sqrt()
    if whole == values.numel():
        return rms
    return torch.cat([rms, values[whole:].square().mean().sqrt().reshape(1)])


def _largest(values: torch.Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0


def _mismatches(
    output: int,
    wrong: torch.Tensor,
    start: int,
    shape: torch.Size,
    expected: torch.Tensor,
    got: torch.Tensor,
    limit: torch.Tensor,
    room: int,
) -> list[Mismatch]:
    found = []
    for position in torch.nonzero(wrong).flatten()[:room].tolist():
        index, rest = [], start + position
        for size in reversed(shape):
            index.append(rest % size)
            rest //= size
        values = (float(expected[position]), float(got[position]), float(limit[position]))
        found.append(Mismatch(output, tuple(reversed(index)), *values))
    return found


def _describe(bad: int, bad_tiles: int, count: int, tile: int) -> str:
    if bad:
        return f"{bad} of {count} elements are outside tolerance"
    if bad_tiles:
        return f"{bad_tiles} runs of {tile} elements are less precise than any honest implementation"
    return ""


def _compare_integers(
    output: int, got: torch.Tensor, oracle: torch.Tensor, others: list[torch.Tensor]
) -> Report:
    wrong = got != oracle
    for other in others:
        wrong &= got != other
    count = int(wrong.sum())
    flat, limit = wrong.flatten(), torch.zeros(1).expand(wrong.numel())
    shown = _mismatches(
        output, flat, 0, oracle.shape, oracle.flatten().double(), got.flatten().double(), limit, SHOWN
    )
    message = f"{count} of {oracle.numel()} integers differ" if count else ""
    return Report(not count, math.inf if count else 0.0, count, oracle.numel(), message, tuple(shown))


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
