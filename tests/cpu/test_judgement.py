"""A candidate's way through the gates, with a child that is no process: who is raced, who may refuse what."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from in_process import CPU, NO_COVER, Answering, Entry, Forging, InProcessChild, Specified, prepared_case

from assay.judge import Policy, decide, judgement
from assay.judge.decide import Evidence
from assay.judge.judgement import Judgement
from assay.judge.prepare import Prepared, PreparedCase
from assay.problems import Case, Precision
from assay.records import ProblemRecord

pytestmark = pytest.mark.usefixtures("one_thread", "undisturbed_memory")
CANDIDATE: Any = SimpleNamespace(name="c", language="torch", entry="forward", digest="d", source="")


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.clamp(x, -1, 1)


def nominal(generator: torch.Generator) -> list[Any]:
    return [torch.rand(16, 24, generator=generator) * 0.5]


def negative(generator: torch.Generator) -> list[Any]:
    return [torch.randn(16, 24, generator=generator) * 3]


def small(generator: torch.Generator) -> list[Any]:
    return [torch.rand(5, 7, generator=generator) * 0.5]


def saturated(generator: torch.Generator) -> list[Any]:
    return [torch.rand(16, 24, generator=generator) + 1]


HIDDEN: dict[str, Any] = {"hidden": True, "derived": True}
NOMINAL = Case("nominal")
OTHER_CONTENTS = Case("other contents", distribution="normal", **HIDDEN)
OTHER_SIZE = Case("other size", **HIDDEN)
DRAWN = {NOMINAL.name: nominal, OTHER_CONTENTS.name: negative, OTHER_SIZE.name: small}


class Way:
    """One judgement of one candidate on some cases, and whether it was raced."""

    def __init__(
        self,
        folder: Path,
        answering: Answering,
        cases: tuple[PreparedCase, ...],
        forging: Forging | None = None,
        policy: Policy | None = None,
    ) -> None:
        child = InProcessChild(Entry(Model, answering), folder, forging)
        shop: Any = SimpleNamespace(
            device=CPU,
            policy=policy or Policy(),
            watch=NO_COVER,
            pool=SimpleNamespace(take=lambda: child, warm=lambda count: None),
            built=lambda candidate: b"",
            load=lambda *_: None,
            note_peak=lambda size_bytes: None,
        )
        problem: Any = SimpleNamespace(
            name="p",
            argument_names=("x",),
            support_files={},
            bind=lambda case: Specified(Model, nominal if case.name == OTHER_CONTENTS.name else small, case),
        )
        record = ProblemRecord("p", "native", "p.py", "d", (), "float64")
        speedway: Any = SimpleNamespace(race=self._race, why_absent=lambda: "nobody to race")
        self.races = 0
        one = Judgement(shop, Prepared(record, Precision(), cases, ()), problem, CANDIDATE, {})
        self.evidence: Evidence = one.collect(speedway)
        self.status = decide(self.evidence).status
        self.outcomes = [case.outcome for case in self.evidence.cases]
        self.codes = {finding.code for finding in self.evidence.findings}

    def _race(self, *_: Any) -> tuple[None, list[Any]]:
        self.races += 1
        return None, []


@pytest.fixture(scope="module")
def cases() -> tuple[PreparedCase, ...]:
    chosen = (NOMINAL, OTHER_CONTENTS, OTHER_SIZE)
    return tuple(prepared_case(Model, DRAWN[case.name], Precision(), case) for case in chosen)


def right(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
    return inputs[0].clamp(-1, 1)


def test_what_is_right_on_every_case_is_raced(tmp_path: Path, cases: tuple[PreparedCase, ...]) -> None:
    way = Way(tmp_path, right, cases)
    assert (way.status, way.outcomes, way.races) == ("passed", ["passed"] * 3, 1)


def test_large_cases_get_fewer_calls_where_timed_ones_follow(
    tmp_path: Path, cases: tuple[PreparedCase, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Policy()
    way = Way(tmp_path, right, cases)
    usual = [policy.nominal_calls, policy.other_calls, policy.other_calls]
    assert [case.calls for case in way.evidence.cases] == usual
    monkeypatch.setattr(judgement, "MIDDLE_BYTES", 1)
    way = Way(tmp_path, right, cases)
    assert [case.calls for case in way.evidence.cases] == [judgement.LARGE_CALLS, 1, 1]
    way = Way(tmp_path, right, cases, policy=Policy(large_bytes=1))
    assert [case.calls for case in way.evidence.cases] == [1, 1, 1]


def test_only_what_is_clean_is_raced(tmp_path: Path, cases: tuple[PreparedCase, ...]) -> None:
    """Right for numbers above zero alone, and right but for what it does to its input."""
    way = Way(tmp_path, lambda call, inputs, module: inputs[0].clamp(0, 1), cases)
    assert (way.status, way.outcomes, way.races) == ("wrong", ["passed", "wrong", "passed"], 0)

    def writing(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        answer = inputs[0].clamp(-1, 1)
        if call == 2:
            inputs[0][0, 0] = 7.0
        return answer

    way = Way(tmp_path, writing, cases)
    assert (way.status, way.races) == ("rejected", 0) and "input_modified" in way.codes


def test_what_the_child_replaced_is_asked_before_it_is_raced(
    tmp_path: Path, cases: tuple[PreparedCase, ...]
) -> None:
    def forging(op: str, reply: dict[str, Any]) -> dict[str, Any]:
        return {**reply, "patched": ["time.time"]} if op == "facts" else reply

    way = Way(tmp_path, right, cases, forging)
    assert (way.status, way.outcomes, way.races) == ("rejected", ["passed"] * 3, 0)
    assert way.codes == {"patched_names"}


def test_raising_on_a_declared_case_is_a_crash(tmp_path: Path, cases: tuple[PreparedCase, ...]) -> None:
    def raising(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        raise ValueError("not today")

    way = Way(tmp_path, raising, cases)
    assert (way.status, way.outcomes, way.races) == ("crashed", ["crashed"], 0)


def test_refusing_a_derived_size_is_noted(tmp_path: Path, cases: tuple[PreparedCase, ...]) -> None:
    def picky(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        assert inputs[0].shape == (16, 24)
        return inputs[0].clamp(-1, 1)

    way = Way(tmp_path, picky, cases)
    assert (way.status, way.outcomes, way.races) == ("passed", ["passed", "passed", "refused"], 1)
    assert way.codes == {"refused_case"}


def test_refusing_values_is_no_way_out(tmp_path: Path, cases: tuple[PreparedCase, ...]) -> None:
    def timid(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        assert inputs[0].min() >= 0
        return inputs[0].clamp(0, 1)

    way = Way(tmp_path, timid, cases)
    assert (way.status, way.races) == ("rejected", 0)
    assert way.evidence.failure is not None and way.evidence.failure.code == "refused_contents"


def test_refusing_every_case_that_tells_is_no_way_out(
    tmp_path: Path, cases: tuple[PreparedCase, ...]
) -> None:
    """On saturated contents a constant is right; the one case that tells is refused for its size."""
    dull = prepared_case(Model, saturated, Precision(), NOMINAL)
    assert not dull.calibration.discriminates

    def constant(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        assert inputs[0].shape == (16, 24)
        return torch.ones_like(inputs[0])

    way = Way(tmp_path, constant, (dull, cases[2]))
    assert (way.status, way.outcomes, way.races) == ("rejected", ["passed", "refused"], 0)
    assert "refused_every_test" in way.codes
