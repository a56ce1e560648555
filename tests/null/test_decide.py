"""From evidence to verdict: pure, in a fixed order of precedence, and never better than the evidence."""

from __future__ import annotations

import importlib.util
import itertools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import assay
from assay.records import (
    VERDICTS,
    CandidateFailure,
    CandidateRecord,
    CaseResult,
    Environment,
    Finding,
    JudgeFault,
    Layer,
    ProblemRecord,
    UserError,
    Verdict,
    from_plain,
    to_json,
)
from assay.records.decoding import decode_verdict


def _load() -> ModuleType:
    """The module alone: its package imports torch, which a decision does not need."""
    path = Path(assay.__file__).parent / "judge" / "decide.py"
    spec = importlib.util.spec_from_file_location("decide_alone", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


DECIDE = _load()
decide, Evidence = DECIDE.decide, DECIDE.Evidence


def case(outcome: str = "passed", ratio: float | None = 0.25, *, derived: bool = False) -> CaseResult:
    return CaseResult(outcome, outcome, derived, derived, {"n": 3}, "given", "nominal", None, 2, ratio)


ENVIRONMENT = Environment("0", "3.11", "2.13", None, None, None, "cpu", "a cpu", "6.1")
NOTE = Finding("nondeterministic", "two calls differ", False, "nominal")
FATAL = Finding("input_modified", "wrote into its inputs", True, "nominal", "copy first")
EVIDENCE = Evidence(
    problem=ProblemRecord("p", "native", "p.py", "d1", ("a flaw",), "float64"),
    candidate=CandidateRecord("c", "torch", "ModelNew", "d2"),
    cases=(case(),),
    findings=(),
    failure=None,
    limit_s=60.0,
    sandbox=(Layer("network", True, "own namespace"), Layer("landlock", False, "kernel too old")),
    environment=ENVIRONMENT,
    policy={"nominal_calls": 3, "allow_tf32": False},
    state="by name",
    seconds={"build": 0.5},
    speed_measurable=True,
    output_tail="printed\n",
)
FAILURES = {
    status: CandidateFailure(status, "the_code", "the message", "the detail\n")
    for status in ("build_failed", "crashed", "timed_out", "rejected", "wrong")
}


def evidence(
    *cases: CaseResult, findings: tuple[Finding, ...] = (), failure: CandidateFailure | None = None
) -> Any:
    return replace(EVIDENCE, cases=cases, findings=findings, failure=failure)


def test_deciding_needs_no_torch() -> None:
    here = Path(__file__)
    code = f"import sys; sys.path.insert(0, {str(here.parent)!r}); import {here.stem}\n"
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_passed_with_the_largest_ratio_of_the_passed_cases() -> None:
    verdict = decide(evidence(case(ratio=0.2), case(ratio=0.7, derived=True), case(ratio=None)))
    assert verdict.status == "passed" and verdict.margin == 0.7
    refused = decide(evidence(case(ratio=0.2), case("refused", 9.0, derived=True)))
    assert refused.status == "passed" and refused.margin == 0.2


def test_notes_do_not_reject() -> None:
    assert decide(evidence(case(), findings=(NOTE, NOTE))).status == "passed"


def test_one_wrong_case_is_wrong_wherever_it_stands() -> None:
    wrong = case("wrong", float("inf"))
    for order in itertools.permutations([case(), wrong, case(derived=True)]):
        assert decide(evidence(*order)).status == "wrong"
    assert decide(evidence(case(), replace(wrong, derived=True))).status == "wrong"


def test_fatal_findings_reject_what_is_right() -> None:
    assert decide(evidence(case("rejected"), findings=(NOTE, FATAL))).status == "rejected"
    assert decide(evidence(case(), findings=(FATAL,))).status == "rejected"


@pytest.mark.parametrize("status", FAILURES)
def test_failures_become_their_verdict_with_a_finding(status: str) -> None:
    verdict = decide(evidence(findings=(NOTE,), failure=FAILURES[status]))
    assert verdict.status == status
    assert verdict.findings == (NOTE, Finding("the_code", "the message", True))


def test_the_words_of_a_failure_are_kept() -> None:
    assert decide(evidence(failure=FAILURES["build_failed"])).diagnosis == "the message\nthe detail"
    assert decide(evidence(failure=FAILURES["crashed"])).death == "the message\nthe detail"
    late = decide(evidence(failure=FAILURES["timed_out"]))
    assert late.phase == "the_code" and late.limit_s == 60.0
    again = CandidateFailure("crashed", "code", "the message", "the message, at length")
    assert decide(evidence(failure=again)).death == "the message, at length"


def test_precedence_is_failure_wrong_rejected_passed() -> None:
    wrong = case("wrong", 5.0)
    for status, failure in FAILURES.items():
        assert decide(evidence(case(), wrong, findings=(FATAL,), failure=failure)).status == status
    assert decide(evidence(case(), wrong, findings=(FATAL,))).status == "wrong"
    assert decide(evidence(case(), findings=(FATAL,))).status == "rejected"
    assert decide(evidence(case())).status == "passed"


@pytest.mark.parametrize(
    "cases",
    [
        (),
        (case(derived=True),),
        (case("refused"),),
        (case("refused"), case(derived=True)),
        (case(), case("not_run")),
        (case(), case("crashed")),
        (case(), case("timed_out")),
        (case(), case("rejected")),
        (case(), case("a new word")),
    ],
)
def test_without_a_declared_case_passed_there_is_no_verdict(cases: tuple[CaseResult, ...]) -> None:
    with pytest.raises(JudgeFault):
        decide(evidence(*cases))


def test_unknown_failures_are_the_judges_fault() -> None:
    for status in ("passed", "", "fine"):
        with pytest.raises(JudgeFault):
            decide(evidence(case(), failure=CandidateFailure(status, "c", "m")))


def every_verdict() -> list[Verdict]:
    made = [decide(evidence(case(), failure=failure)) for failure in FAILURES.values()]
    made += [decide(evidence(case())), decide(evidence(case("wrong", float("inf"))))]
    return [*made, decide(evidence(case(), findings=(FATAL,)))]


def test_deciding_is_pure() -> None:
    given = evidence(case(), case(derived=True), findings=(NOTE,))
    before = repr(given)
    assert decide(given) == decide(given) and repr(given) == before
    assert {v.status for v in every_verdict()} == {cls.status for cls in VERDICTS}


@pytest.mark.parametrize("verdict", every_verdict(), ids=lambda v: v.status)
def test_every_verdict_round_trips_through_json(verdict: Verdict) -> None:
    plain = json.loads(to_json(verdict))
    assert {
        "status",
        "schema",
        "findings",
        "cases",
        "sandbox",
        "environment",
        "problem",
        "candidate",
    } <= plain.keys()
    assert plain["status"] == verdict.status and plain["schema"] == 1
    assert from_plain(type(verdict), plain) == verdict
    assert ("margin" in plain) == (verdict.status == "passed")
    assert ("speed" in plain) == (verdict.status == "passed")
    for other in VERDICTS:
        if other.status != verdict.status:
            with pytest.raises(Exception, match="status"):
                from_plain(other, plain)


@pytest.mark.parametrize("verdict", every_verdict(), ids=lambda v: v.status)
def test_the_status_says_which_kind_a_record_is(verdict: Verdict) -> None:
    plain = json.loads(to_json(verdict))
    assert decode_verdict(plain) == verdict
    for status in ("passed", "wrong", "timed_out", "fine", None):
        if status != verdict.status and {status, verdict.status} != {"wrong", "rejected"}:
            with pytest.raises(UserError):
                decode_verdict({**plain, "status": status})


@pytest.mark.parametrize("verdict", every_verdict(), ids=lambda v: v.status)
def test_every_verdict_carries_the_whole_evidence(verdict: Verdict) -> None:
    for name in (
        "problem",
        "candidate",
        "sandbox",
        "environment",
        "policy",
        "state",
        "seconds",
        "output_tail",
    ):
        assert getattr(verdict, name) == getattr(EVIDENCE, name)
    assert verdict.speed_measurable is True and verdict.cases
