"""The hostile walk on the GPU, and candidates that attack the device itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile_walk import PROBLEM, Expectation, candidates_in
from test_hostile import judge, judge_survives, test_hostile_candidate_gets_its_verdict, uids

from assay.candidates import read_candidate
from assay.judge import Judge
from assay.problems import load_problem

__all__ = ["judge", "judge_survives", "test_hostile_candidate_gets_its_verdict", "uids"]
pytestmark = pytest.mark.gpu
DEVICE_BREAKERS = Path(__file__).parent / "hostile"


@pytest.mark.parametrize("breaker", candidates_in(DEVICE_BREAKERS))
def test_device_breaker_gets_its_verdict(judge: Judge, breaker: Expectation) -> None:
    verdict = judge.evaluate(load_problem(PROBLEM), read_candidate(breaker.path))
    assert verdict.status in breaker.statuses, (verdict.findings, verdict.output_tail)
    if breaker.finding:
        assert breaker.finding in [finding.code for finding in verdict.findings]
