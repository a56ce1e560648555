"""Large problems whose rows do not know of each other, judged a few rows at a time.

The oracle needs many times the memory of the problem itself. Where the first dimension of inputs and outputs
is a batch, in the sense that rows may be computed in any company, it is run on parts. Whether that holds is
found by trial, in float64: rows must come out the same alone and together.

Not covered: batches along another dimension; modules that mix rows (batch statistics) are judged whole.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from assay.correctness.reference import UNSUPPORTED, Reference
from assay.correctness.screen import distance
from assay.correctness.tolerance import SHOWN, Report
from assay.problems.values import flatten, unflatten

WHOLE_BYTES = 1 << 27
"""Problems up to this size are calibrated whole."""
GLANCE_BYTES, MOST_GLANCES = 1 << 28, 48
"""So much is compared at once where nothing is wrong: a few rows at a time leave most of the device idle."""
PART_BYTES, MOST_PARTS = 1 << 26, 16
SAME = 1e-9
NATIVELY_SAME = 1e-2
_SYSTEM = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class Split:
    """How a case falls into parts."""

    cut: tuple[int, ...]
    """Which input tensors have a row for each row of the outputs."""
    rows: int
    rows_per_part: int
    """For whatever takes many times the memory of the part itself: calibration, honest variants."""
    rows_per_glance: int
    """For comparing with the oracle alone."""

    def parts(self, within: slice | None = None) -> Iterator[slice]:
        return _cut(within or slice(0, self.rows), self.rows_per_part)

    def glances(self, share: float = 1.0) -> list[slice]:
        """All of them, or so large a share, drawn anew every time."""
        every = list(_cut(slice(0, self.rows), self.rows_per_glance))
        drawn = _SYSTEM.sample(range(len(every)), math.ceil(share * len(every)))
        return [every[k] for k in sorted(drawn)]

    def of_inputs(self, inputs: list[Any], rows: slice | torch.Tensor) -> list[Any]:
        """The inputs of a part, as views where rows are a slice."""
        tensors: list[torch.Tensor] = []
        tree = flatten(inputs, tensors)
        chosen: list[Any] = unflatten(tree, [t[rows] if k in self.cut else t for k, t in enumerate(tensors)])
        return chosen


def _cut(rows: slice, size: int) -> Iterator[slice]:
    for first in range(rows.start, rows.stop, size):
        yield slice(first, min(first + size, rows.stop))


def find_split(reference: Reference, inputs: list[Any], outputs: Sequence[torch.Tensor]) -> Split | None:
    """The way to cut this case, or None if it is small or has none."""
    tensors: list[torch.Tensor] = []
    flatten(inputs, tensors)
    size_bytes = sum(t.numel() * t.element_size() for t in (*tensors, *outputs))
    lengths = {t.shape[0] if t.dim() else 0 for t in outputs}
    if size_bytes <= WHOLE_BYTES or len(lengths) != 1 or reference.oracle != "float64":
        return None
    rows = lengths.pop()
    part_bytes = max(PART_BYTES, size_bytes // MOST_PARTS)
    per_part = max(1, rows * part_bytes // size_bytes)
    glance_bytes = max(GLANCE_BYTES, size_bytes // MOST_GLANCES)
    per_glance = max(per_part, rows * glance_bytes // size_bytes)
    fitting = tuple(k for k, t in enumerate(tensors) if t.dim() and t.shape[0] == rows)
    if rows < 2 or not fitting:
        return None
    for cut in dict.fromkeys((fitting, *((k,) for k in fitting))):
        split = Split(cut, rows, per_part, per_glance)
        dangling = _may_dangle(tensors, split, all_cut=cut == fitting)
        if not dangling and _holds(reference, split, inputs, outputs):
            return split
    return None


def _may_dangle(tensors: Sequence[torch.Tensor], split: Split, *, all_cut: bool) -> bool:
    """Whether an integer may name a row that a part does not have: on a GPU that would end the process.

    Integers may be places, or give rise to them by their number; cut alone, they name less than before.
    """
    integers = [k for k, t in enumerate(tensors) if t.dtype in (torch.int32, torch.int64) and t.numel()]
    if not integers or set(split.cut) <= set(integers):
        return False
    count = min(split.rows_per_part, split.rows // 2)
    return not all_cut or any(count <= int(tensors[k].max()) < split.rows for k in integers)


def _holds(reference: Reference, split: Split, inputs: list[Any], outputs: Sequence[torch.Tensor]) -> bool:
    """Whether the first and last rows come out the same alone, together, and among all."""
    count = min(split.rows_per_part, split.rows // 2)
    device = outputs[0].device
    first, last = (
        torch.arange(count, device=device),
        torch.arange(split.rows - count, split.rows, device=device),
    )
    try:
        alone = [reference.wide(split.of_inputs(inputs, rows)) for rows in (first, last)]
        together = reference.wide(split.of_inputs(inputs, torch.cat([first, last])))
    except torch.OutOfMemoryError:
        raise
    except UNSUPPORTED:
        return False  # this number of rows is not one the module takes
    if any(t.shape[:1] != (2 * count,) for t in together) or len(together) != len(outputs):
        return False
    joined = [torch.cat([a, b]) for a, b in zip(*alone, strict=True)]
    if any(a.shape != b.shape for a, b in zip(joined, together, strict=True)):
        return False
    native = [t[-count:].to(a.dtype) for t, a in zip(outputs, alone[1], strict=True)]
    return distance(joined, together) <= SAME and distance(native, alone[1]) <= NATIVELY_SAME


def merged_parts(reports: Sequence[tuple[int, Report]]) -> Report:
    """One report from those of the parts, given with the row each starts at."""
    failing = [(first, report) for first, report in reports if not report.ok]
    shown = [
        replace(m, index=(m.index[0] + first, *m.index[1:]))
        for first, report in failing
        for m in report.mismatches
    ]
    wrong, elements = sum(r.wrong_elements for _, r in reports), sum(r.elements for _, r in reports)
    message = ""
    if failing:
        first, report = failing[0]
        message = f"{report.message} (of the rows from {first} on)"
    return Report(
        ok=not failing,
        worst_ratio=max(report.worst_ratio for _, report in reports),
        wrong_elements=wrong,
        elements=elements,
        message=message,
        mismatches=tuple(shown[:SHOWN]),
    )
