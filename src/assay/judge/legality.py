"""Derived layouts that the specification itself does not survive on this device: no candidate has to.

Layouts are first tried on the CPU. A library may take one there and fault on a GPU (torch's attention does,
on a pointer that is not aligned), and a fault takes its process along: so the trial is made in another one.

Not covered: candidates that use another library than the specification does, and fault where it does not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from assay.judge.cases import CaseRunner
from assay.judge.prepare import Prepared, PreparedCase
from assay.judge.stable import load_opponent
from assay.judge.workshop import Workshop
from assay.problems import Problem
from assay.records import CandidateFailure
from assay.speed.opponents import make_opponent


def without_faults(shop: Workshop, problem: Problem, prepared: Prepared) -> Prepared:
    """The same, without the derived cases whose layout the specification faults on or refuses."""
    todo = [c for c in prepared.cases if c.instance.case.derived and c.instance.case.layout != "given"]
    dropped: list[PreparedCase] = []
    while todo:
        try:
            survived = _survived(shop, problem, prepared, todo)
        except CandidateFailure:
            break  # it does not load: the ladder will say so
        dropped += todo[survived : survived + 1]
        todo = todo[survived + 1 :]
    return dataclasses.replace(prepared, cases=tuple(c for c in prepared.cases if c not in dropped))


def _survived(shop: Workshop, problem: Problem, prepared: Prepared, cases: Sequence[PreparedCase]) -> int:
    """How many of these cases one process of the specification gets through."""
    child = shop.pool.take()  # eager code needs no compilers
    is_module = problem.entry == "ModelNew"
    runner = CaseRunner(child, shop.device, shop.policy, prepared.precision, is_module=is_module)
    try:
        load_opponent(shop, child, make_opponent(problem, "eager"), problem)
        for survived, case in enumerate(cases):
            if not _survives(runner, case):
                return survived
    finally:
        runner.close()
        child.close()
    return len(cases)


def _survives(runner: CaseRunner, case: PreparedCase) -> bool:
    try:
        runner.is_right(*runner.set_out(case))
    except CandidateFailure:
        return False
    return True
