"""What every problem of a suite tells apart: the judge's own mutants put before each of its cases.

A problem is worth its weakest case and nothing if no case tells a wrong answer from a right one. Sizes hardly
matter for that, so that a CPU can do it on scaled-down problems.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import torch

from assay.correctness import MUTANTS
from assay.evaluation.suite import Suite
from assay.judge import Policy, prepare
from assay.problems import input_bytes, load_problem
from assay.records import About, AssayError


@dataclass(frozen=True, slots=True)
class Discrimination:
    """One problem before the mutants."""

    problem: str
    about: About
    dtypes: tuple[str, ...]
    """Of its outputs, over all cases."""
    nominal_bytes: int
    """Of the inputs, at the size it is scored at."""
    flops_per_byte: float | None
    """By its own cost model."""
    declared: int
    derived: int
    """Cases, the empty ones left out."""
    noticed: dict[str, float]
    """By mutant, the share of cases that tell it from a right answer."""
    flaws: tuple[str, ...]
    seconds: float

    @property
    def sound(self) -> bool:
        return not self.flaws


def discriminate(path: str, policy: Policy, device: str) -> Discrimination:
    """One problem; whatever keeps it from being judged is a flaw."""
    start = time.monotonic()
    problem = load_problem(path)
    try:
        prepared = prepare(problem, policy, torch.device(device))
        nominal = problem.nominal()
        size_bytes, cost = input_bytes(problem, nominal), problem.bind(nominal).cost()
    except AssayError as error:
        return Discrimination(
            problem.name, problem.about, (), 0, None, 0, 0, {}, (str(error),), time.monotonic() - start
        )
    full = [case for case in prepared.cases if all(0 not in shape for shape in case.calibration.shapes)]
    let_pass = [{*case.calibration.survivors, *case.calibration.unseen} for case in full]
    noticed = {name: sum(name not in passed for passed in let_pass) / len(full) for name in MUTANTS}
    derived = sum(case.instance.case.derived for case in full)
    return Discrimination(
        problem=problem.name,
        about=problem.about,
        dtypes=tuple(dict.fromkeys(name for case in full for name in case.calibration.dtypes)),
        nominal_bytes=size_bytes,
        flops_per_byte=cost.flops / cost.bytes if cost is not None and cost.bytes else None,
        declared=len(full) - derived,
        derived=derived,
        noticed=noticed,
        flaws=prepared.record.flaws,
        seconds=round(time.monotonic() - start, 2),
    )


def discriminate_all(
    suite: Suite, policy: Policy, device: str, jobs: int, on_row: Callable[[Discrimination], None]
) -> list[Discrimination]:
    """Every problem that can be read, told as they come, in the order of the suite."""
    paths = [problem.path for problem in suite.problems.values()]
    if jobs == 1:
        return [_told(discriminate(path, policy, device), on_row) for path in paths]
    spawning = multiprocessing.get_context("spawn")
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ProcessPoolExecutor(jobs, spawning, torch.set_num_threads, (threads,)) as pool:
        waiting = [pool.submit(discriminate, path, policy, device) for path in paths]
        return [_told(future.result(), on_row) for future in waiting]


def _told(row: Discrimination, on_row: Callable[[Discrimination], None]) -> Discrimination:
    on_row(row)
    return row


def tally(rows: Sequence[Discrimination]) -> dict[str, dict[str, int]]:
    """How many problems there are of each level, category, regime and dtype."""
    counts: dict[str, dict[str, int]] = {"level": {}, "category": {}, "regime": {}, "dtype": {}}
    for row in rows:
        kinds = [
            ("level", str(row.about.level)),
            ("category", row.about.category),
            ("regime", row.about.regime),
            *(("dtype", name) for name in row.dtypes),
        ]
        for kind, name in kinds:
            counts[kind][name or "unknown"] = counts[kind].get(name or "unknown", 0) + 1
    return {kind: dict(sorted(found.items())) for kind, found in counts.items()}
