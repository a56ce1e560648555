"""From evidence to verdict: a pure function, tested without processes and without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.records import (
    BuildFailed,
    CandidateFailure,
    CandidateRecord,
    CaseResult,
    Census,
    Crashed,
    Environment,
    Finding,
    JudgeFault,
    KernelResources,
    Layer,
    Passed,
    ProblemRecord,
    Rejected,
    Speed,
    TimedOut,
    Verdict,
    Wrong,
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything a judgement collected. Never a verdict."""

    problem: ProblemRecord
    candidate: CandidateRecord
    cases: tuple[CaseResult, ...]
    findings: tuple[Finding, ...]
    failure: CandidateFailure | None
    """What ended the run before its time, if anything did."""
    limit_s: float
    """The limit that was in force when it ended."""
    sandbox: tuple[Layer, ...]
    environment: Environment
    policy: Mapping[str, Any]
    state: str
    seconds: Mapping[str, float]
    speed_measurable: bool
    output_tail: str
    census: Census | None = None
    speed: Speed | None = None
    speed_absent: str = ""
    resources: tuple[KernelResources, ...] = ()


def decide(evidence: Evidence) -> Verdict:
    """The verdict that this evidence bears, and no better one."""
    if evidence.failure is not None:
        return _failed(evidence, evidence.failure)
    common = _common(evidence)
    if any(case.outcome == "wrong" for case in evidence.cases):
        return Wrong(**common)
    if any(finding.fatal for finding in evidence.findings):
        return Rejected(**common)
    passed = [case for case in evidence.cases if case.outcome == "passed"]
    unexpected = {case.outcome for case in evidence.cases} - {"passed", "refused"}
    if unexpected or not any(not case.derived for case in passed):
        raise JudgeFault(f"no verdict follows from these cases: {sorted(unexpected) or 'none passed'}")
    margin = max(case.worst_ratio or 0.0 for case in passed)
    return Passed(**common, margin=margin, speed=evidence.speed, speed_absent=evidence.speed_absent)


def _failed(evidence: Evidence, failure: CandidateFailure) -> Verdict:
    finding = Finding(failure.code, failure.message, True)
    common = _common(evidence)
    common["findings"] = (*evidence.findings, finding)
    detail = failure.detail.rstrip()
    if not detail.startswith(failure.message):
        detail = f"{failure.message}\n{detail}".rstrip()
    match failure.status:
        case "build_failed":
            return BuildFailed(**common, diagnosis=detail)
        case "crashed":
            return Crashed(**common, death=detail)
        case "timed_out":
            return TimedOut(**common, phase=failure.code, limit_s=evidence.limit_s)
        case "rejected":
            return Rejected(**common)
        case "wrong":
            return Wrong(**common)
    raise JudgeFault(f"no verdict is called {failure.status!r}")


def _common(evidence: Evidence) -> dict[str, Any]:
    return {
        "problem": evidence.problem,
        "candidate": evidence.candidate,
        "findings": evidence.findings,
        "cases": evidence.cases,
        "sandbox": evidence.sandbox,
        "environment": evidence.environment,
        "policy": evidence.policy,
        "state": evidence.state,
        "seconds": evidence.seconds,
        "speed_measurable": evidence.speed_measurable,
        "census": evidence.census,
        "output_tail": evidence.output_tail,
        "resources": evidence.resources,
    }
