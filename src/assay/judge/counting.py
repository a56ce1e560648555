"""One call of a candidate under a tool that reads the device's counters, confined as under compute-sanitizer.

Not covered: what the tool's words mean (assay.profile.counters). Nothing here touches a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.candidates import Candidate
from assay.judge.deep import GRACE_S, inspected_case
from assay.judge.desk import capacity_bytes
from assay.judge.prepare import Prepared, PreparedCase
from assay.judge.workshop import Workshop
from assay.problems import Problem
from assay.worker.inspected import pack_task
from assay.worker.inspection import NCU, Inspection, decode_inspection

MOST_INPUT_BYTES = 1 << 28
"""They lie in the child's scratch folder, which is memory."""


@dataclass(frozen=True, slots=True)
class CounterTool:
    """ncu, and what it is to count."""

    path: str
    readable: tuple[str, ...]
    """Files and folders that it needs beside what every child may read."""
    metrics: tuple[str, ...]
    timeout_s: float


def run_under(
    shop: Workshop, prepared: Prepared, problem: Problem, candidate: Candidate, tool: CounterTool
) -> tuple[str, Inspection] | None:
    """The case that was called and what came of it; None where none is small enough."""
    case = _chosen(prepared.cases)
    if case is None:
        return None
    built = shop.built(candidate)
    load, payload = shop.to_load(candidate, built, problem.argument_names, problem.support_files)
    contents = inspected_case(case, prepared.precision, shop.device, with_state=True)
    task = pack_task(str(shop.device), load, payload, [contents], marked=True)
    child = shop.pool.take_inspector(tool.readable)
    try:
        head = {"tool": NCU, "ncu": tool.path, "metrics": list(tool.metrics), "timeout_s": tool.timeout_s}
        reply = child.ask("inspect", head, payload=task, timeout_s=tool.timeout_s + GRACE_S)
        return case.instance.case.name, decode_inspection(reply)
    finally:
        child.close(wait=True)


def _chosen(cases: Sequence[PreparedCase]) -> PreparedCase | None:
    """The one that is scored, or the largest that fits."""
    fitting = [case for case in cases if case.calibration.input_bytes <= MOST_INPUT_BYTES]
    if fitting and fitting[0] is cases[0]:
        return cases[0]
    return max(fitting, key=_size_bytes, default=None)


def _size_bytes(case: PreparedCase) -> int:
    known = case.calibration
    return known.input_bytes + capacity_bytes(known.shapes, known.dtypes)
