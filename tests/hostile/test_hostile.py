"""Candidates that attack the judge: each gets its verdict, and the judge goes on as if nothing had been.

The candidates say in their headers what they do and what they must get. A breach of the sandbox shows as
`passed`: candidates that look for something return right values only if they found it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hostile_walk import (
    CANDIDATES,
    HEALTHY,
    PROBLEM,
    SMALL_LIMITS,
    Expectation,
    candidates_in,
    marks_left,
    processes_of,
)

from assay.candidates import candidate_from_source, read_candidate
from assay.judge import Judge
from assay.problems import load_problem
from assay.sandbox import unused_uid


@pytest.fixture(scope="module")
def uids() -> Iterator[set[int]]:
    """The users that this module's runs were given; None where there is only one's own."""
    given: set[int] = set()

    def recorded() -> int | None:
        uid = unused_uid()
        given.update([] if uid is None else [uid])
        return uid

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("assay.worker.pool.unused_uid", recorded)
        yield given


@pytest.fixture(scope="module")
def judge(device: str, uids: set[int]) -> Iterator[Judge]:
    with Judge(device, SMALL_LIMITS) as judge:
        judge.prepare(load_problem(PROBLEM))
        yield judge
    assert processes_of(uids) == {}
    assert marks_left() == []


@pytest.fixture(autouse=True)
def judge_survives(judge: Judge, uids: set[int]) -> Iterator[None]:
    """After each candidate the same judge passes a healthy one, and only its spare children are left."""
    judge._shop.pool.settle()
    before = len(os.listdir("/proc/self/fd"))
    yield
    verdict = judge.evaluate(load_problem(PROBLEM), candidate_from_source(HEALTHY, "healthy", ".py"))
    assert verdict.status == "passed", verdict
    pool = judge._shop.pool
    pool.settle()
    assert processes_of(uids - {spare._plan.uid for spare in pool._spares}) == {}
    assert len(processes_of(uids)) <= len(pool._spares) <= 2
    assert marks_left() == []
    assert len(os.listdir("/proc/self/fd")) <= before + 8


@pytest.mark.parametrize("hostile", candidates_in(CANDIDATES))
def test_hostile_candidate_gets_its_verdict(judge: Judge, device: str, hostile: Expectation) -> None:
    if device not in hostile.devices:
        pytest.skip(f"not for {device}")
    verdict = judge.evaluate(load_problem(PROBLEM), read_candidate(hostile.path))
    assert verdict.status in hostile.statuses, (verdict.findings, verdict.output_tail)
    if hostile.finding:
        assert hostile.finding in [finding.code for finding in verdict.findings]
    assert sum(len(finding.message) for finding in verdict.findings) < 100_000
