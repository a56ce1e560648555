"""Candidates that attack the judge: each gets its verdict, and the judge goes on as if nothing had been.

The candidates say in their headers what they do and what they must get. A breach of the sandbox shows as
`passed`: candidates that look for something return right values only if they found it.
"""

from __future__ import annotations

import os
import time
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
    sandbox_processes,
)

from assay.candidates import candidate_from_source, read_candidate
from assay.judge import Judge
from assay.problems import load_problem

KNOWN_BUGS: dict[str, str] = {}


@pytest.fixture(scope="module")
def judge(device: str) -> Iterator[Judge]:
    with Judge(device, SMALL_LIMITS) as judge:
        judge.prepare(load_problem(PROBLEM))
        yield judge


@pytest.fixture(autouse=True)
def judge_survives(judge: Judge) -> Iterator[None]:
    """After each candidate the same judge passes a healthy one, and only its spare child is left."""
    before = sorted(os.listdir("/proc/self/fd"))
    yield
    verdict = judge.evaluate(load_problem(PROBLEM), candidate_from_source(HEALTHY, "healthy", ".py"))
    assert verdict.status == "passed", verdict
    deadline = time.monotonic() + 5
    while len(left := sandbox_processes()) > 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(left) <= 1, left
    assert marks_left() == []
    assert len(os.listdir("/proc/self/fd")) <= len(before) + 4


@pytest.mark.parametrize("hostile", candidates_in(CANDIDATES, KNOWN_BUGS))
def test_hostile_candidate_gets_its_verdict(judge: Judge, device: str, hostile: Expectation) -> None:
    if device not in hostile.devices:
        pytest.skip(f"not for {device}")
    verdict = judge.evaluate(load_problem(PROBLEM), read_candidate(hostile.path))
    assert verdict.status in hostile.statuses, (verdict.findings, verdict.output_tail)
    if hostile.finding:
        assert hostile.finding in [finding.code for finding in verdict.findings]
    assert sum(len(finding.message) for finding in verdict.findings) < 100_000
