"""Counts what one call runs: torch's operators by a dispatch mode, device kernels by CUPTI.

Names and times only; what they mean is decided by the judge. Not covered: operators that run on threads the
candidate started, and anything a hostile candidate hides from its own process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from assay.correctness.modes import DispatchMode
from assay.worker.device_activity import ActivityRecorder, KernelLaunch

MOST_NAMES = 200
LONGEST_NAME = 120


class _Operators(DispatchMode):
    """Each operator, however it was called, with the host's time in it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, list[float]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        start_ns = time.perf_counter_ns()
        try:
            return func(*args, **(kwargs or {}))
        finally:
            spent = self.seen.setdefault(str(func.name()), [0, 0.0])
            spent[0] += 1
            spent[1] += (time.perf_counter_ns() - start_ns) / 1e3


def count_operators(call: Callable[[], Any]) -> dict[str, Any]:
    """Operators of one call, and how long the call took in all."""
    operators = _Operators()
    start_ns = time.perf_counter_ns()
    with operators:
        call()
    total_us = (time.perf_counter_ns() - start_ns) / 1e3
    return {"operators": _rows(operators.seen), "total_us": total_us}


def count_kernels(call: Callable[[], Any], launches: list[KernelLaunch] | None = None) -> list[list[Any]]:
    """What the device did for one call, by whomever it was launched; how is added to `launches`."""
    with ActivityRecorder() as recorder:
        call()
    if launches is not None:
        launches += recorder.launches
    seen: dict[str, list[float]] = {}
    for name, spent_us in recorder.activities:
        spent = seen.setdefault(name, [0, 0.0])
        spent[0] += 1
        spent[1] += spent_us
    return _rows(seen)


def _rows(seen: dict[str, list[float]]) -> list[list[Any]]:
    """Name, calls, microseconds; the longest first."""
    ordered = sorted(seen.items(), key=lambda item: -item[1][1])[:MOST_NAMES]
    return [[_printable(name), int(spent[0]), float(spent[1])] for name, spent in ordered]


def _printable(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name[:LONGEST_NAME])
