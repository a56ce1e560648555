"""Gate 2 with real processes on the CPU: what is raced, what ends a race early, what is remembered.

Nothing here depends on how fast anything is, except where a candidate sleeps to be slow beyond doubt. But
processors that are busy with other things disturb an opponent as a cheat would: races are run alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.candidates import Candidate, candidate_from_source
from assay.judge import Judge, Policy, speedway
from assay.judge.pace import Plan
from assay.problems import load_problem
from assay.records import FASTER, NO_DIFFERENCE, SLOWER, Finding, Passed, Speed, Verdict, from_plain, to_plain
from assay.speed.score import score

EAGER = Policy(rungs=("eager",), derive_hidden=False)
LINEAR = """
import torch

rows = 32
cols = 48


class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.first = torch.nn.Linear(features, features)

    def forward(self, x):
        return torch.sigmoid(self.first(x))


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return [cols]
"""
IN_PLACE = """
import torch

rows = 32
cols = 48


class Model(torch.nn.Module):
    def forward(self, x):
        x.mul_(2.0)
        return torch.sigmoid(x)


def get_inputs():
    return [torch.randn(rows, cols)]
"""
# A branch on a value: it runs, and no tracer can follow it.
UNTRACEABLE = """
import torch

rows = 32
cols = 48


class Model(torch.nn.Module):
    def forward(self, x):
        if x.abs().sum().item() < 0:
            return x.clone()
        return torch.sigmoid(x)


def get_inputs():
    return [torch.randn(rows, cols)]
"""
COPY = """
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.first = torch.nn.Linear(features, features)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return torch.sigmoid(self.first(x))
"""


@pytest.fixture(scope="module")
def one_thread_each() -> Iterator[None]:
    """For candidates too: threads that wait for each other take longer than the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Problems, and the cache that the judges of this module share."""
    folder = tmp_path_factory.mktemp("race")
    for name, text in (("linear", LINEAR), ("in_place", IN_PLACE), ("untraceable", UNTRACEABLE)):
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.fixture(scope="module")
def judge(folder: Path, one_thread_each: None) -> Iterator[Judge]:
    with Judge("cpu", EAGER, folder / "cache") as judge:
        yield judge


@pytest.fixture(scope="module")
def copied(judge: Judge, folder: Path) -> Verdict:
    """The verdict on a copy of the specification."""
    return judge.evaluate(load_problem(folder / "linear.py"), candidate(COPY))


def candidate(source: str) -> Candidate:
    return candidate_from_source(source, "candidate", ".py")


def speed_of(verdict: Verdict) -> Speed:
    assert isinstance(verdict, Passed), verdict.findings
    assert verdict.speed is not None, verdict.speed_absent
    return verdict.speed


def codes(verdict: Verdict) -> list[str]:
    return [finding.code for finding in verdict.findings]


@pytest.mark.alone
def test_a_passed_verdict_has_a_speed(copied: Verdict) -> None:
    speed = speed_of(copied)
    assert speed.processes >= EAGER.processes_timed == 3
    eager = next(rung for rung in speed.rungs if rung.name == "eager")
    assert eager.times is not None
    assert speed.blocks == speed.processes * Plan.for_size(0, eager.times.device_us).blocks
    assert (speed.opponent, speed.margin, speed.early_out) == ("eager", EAGER.margin, False)
    assert speed.outcome in (FASTER, SLOWER, NO_DIFFERENCE)
    assert speed.ratio.low <= speed.ratio.middle <= speed.ratio.high
    assert speed.clocks.agrees or "clocks_disagree" in codes(copied)  # a note, where noise made them
    assert speed.times.first_call_ms is not None and speed.times.latency_us is not None
    ratios = {rung.name: rung.ratio for rung in speed.rungs}
    assert ratios.pop("eager") == pytest.approx(speed.ratio.middle)
    assert ratios and set(ratios.values()) == {None}
    assert speed.graphed is None and "GPU" in speed.graphed_absent
    assert {"prepare", "baselines", "correctness", "speed"} <= set(copied.seconds)


@pytest.mark.alone
def test_a_speed_survives_its_json_form(copied: Verdict) -> None:
    speed = speed_of(copied)
    again = from_plain(Speed, to_plain(speed), "speed")
    assert to_plain(again) == to_plain(speed)


@pytest.mark.alone
def test_a_hopeless_candidate_is_let_go_after_one_process(judge: Judge, folder: Path) -> None:
    source = COPY.replace("import torch\n", "import time\nimport torch\n", 1)
    source = source.replace("        self.calls += 1\n", "        time.sleep(0.02)\n")
    speed = speed_of(judge.evaluate(load_problem(folder / "linear.py"), candidate(source)))
    assert (speed.early_out, speed.processes, speed.outcome) == (True, 1, SLOWER)
    assert speed.ratio.high < 1 / 3


@pytest.mark.alone
@pytest.mark.parametrize(
    "answer",
    [
        "torch.zeros_like(x)",
        "torch.sigmoid(self.first(x)) * 1.0001",
        "torch.sigmoid(self.first(x))[:-1]",
        "torch.sigmoid(self.first(x)).double()",
    ],
)
def test_wrong_from_some_call_on_is_wrong(judge: Judge, folder: Path, answer: str) -> None:
    source = COPY.replace("        self.calls += 1\n", f"        self.calls += 1\n        late = {answer}\n")
    source = source.replace("return torch.sigmoid(self.first(x))", "return late if self.calls > 20 else ok")
    source = source.replace("        late =", "        ok = torch.sigmoid(self.first(x))\n        late =")
    verdict = judge.evaluate(load_problem(folder / "linear.py"), candidate(source))
    assert verdict.status == "wrong", verdict.findings
    assert "wrong_when_timed" in codes(verdict)
    assert all(case.outcome == "passed" for case in verdict.cases), "gate 1 saw nothing wrong with it"
    assert not hasattr(verdict, "speed")


@pytest.mark.alone
def test_failing_from_some_call_on_is_no_judges_fault(judge: Judge, folder: Path) -> None:
    source = COPY.replace(
        "        self.calls += 1\n", "        self.calls += 1\n        assert self.calls < 9\n"
    )
    verdict = judge.evaluate(load_problem(folder / "linear.py"), candidate(source))
    assert verdict.status == "crashed"
    healthy = judge.evaluate(load_problem(folder / "linear.py"), candidate(COPY))
    assert speed_of(healthy).processes >= 3


@pytest.mark.alone
def test_candidates_matched_by_seed_are_raced(judge: Judge, folder: Path) -> None:
    verdict = judge.evaluate(load_problem(folder / "linear.py"), candidate(COPY.replace("first", "other")))
    assert verdict.state == "by seed"
    assert speed_of(verdict).processes >= 3


@pytest.mark.alone
def test_what_writes_into_its_inputs_is_raced_on_fresh_ones(judge: Judge, folder: Path) -> None:
    """Both contestants double the input they were lent: the second must not get it doubled already."""
    source = "import torch\ndef forward(x):\n    x.mul_(2.0)\n    return torch.sigmoid(x)\n"
    quiet = "import torch\ndef forward(x):\n    return torch.sigmoid(x * 2.0)\n"
    problem = load_problem(folder / "in_place.py")
    for each in (source, quiet):
        assert speed_of(judge.evaluate(problem, candidate(each))).processes >= 3


@pytest.mark.alone
@pytest.mark.parametrize("doubted", [1, 2])
def test_times_that_speak_against_it_reject_it_if_they_do_so_again(
    judge: Judge, folder: Path, monkeypatch: pytest.MonkeyPatch, doubted: int
) -> None:
    """Noise may look like a cheat once; whoever cheats does so in the next race as well."""
    races = []

    def doubting(*given: Any) -> tuple[Speed, list[Finding]]:
        speed, _ = score(*given)
        races.append(speed)
        own = [Finding("clocks_disagree", f"race {len(races)}", True)] if len(races) <= doubted else []
        return speed, own

    monkeypatch.setattr(speedway, "score", doubting)
    verdict = judge.evaluate(load_problem(folder / "linear.py"), candidate(COPY))
    told = {finding.code: finding.message for finding in verdict.findings}
    assert "clocks_disagree: race 1" in told["raced_again"]
    if doubted == 1:
        assert speed_of(verdict) is races[1] and "clocks_disagree" not in told
    else:
        assert verdict.status == "rejected" and told["clocks_disagree"] == "race 2"
    assert len(races) == 2


@pytest.mark.alone
def test_another_judge_finds_the_ladder_on_disk(judge: Judge, folder: Path) -> None:
    problem = load_problem(folder / "linear.py")
    first = judge.bench(problem)
    assert first.opponent == "eager"
    with Judge("cpu", EAGER, folder / "cache") as second:
        found = second.bench(problem)
        assert (found.rungs, found.opponent, found.seconds) == (first.rungs, first.opponent, first.seconds)
        assert speed_of(second.evaluate(problem, candidate(COPY))).rungs[0].times == first.rungs[0].times
    with Judge("cpu", EAGER, folder / "another cache") as stranger:
        assert stranger.bench(problem).rungs != first.rungs


def test_a_ladder_on_disk_that_cannot_be_read_is_measured_again(
    judge: Judge, folder: Path, one_thread_each: None
) -> None:
    problem = load_problem(folder / "linear.py")
    judge.bench(problem)
    older_form = '{"opponent": "eager", "seconds": 1.0, "rungs": []}'
    for kept in ("not JSON", older_form):
        for record in (folder / "cache").glob("ladders/*/record*.json"):
            record.write_text(kept)
        with Judge("cpu", EAGER, folder / "cache") as second:
            assert second.bench(problem).rungs[0].times is not None


def test_a_baseline_that_fails_is_absent_and_tried_again(folder: Path, one_thread_each: None) -> None:
    problem = load_problem(folder / "untraceable.py")
    policy = Policy(rungs=("eager", "aot-inductor"), derive_hidden=False)
    ladders = []
    for _ in range(2):
        with Judge("cpu", policy, folder / "cache") as judge:
            ladders.append(judge.bench(problem))
    for ladder in ladders:
        rungs = {rung.name: rung for rung in ladder.rungs}
        assert ladder.opponent == "eager"
        assert rungs["eager"].times is not None and rungs["eager"].absent == ""
        assert rungs["aot-inductor"].times is None
        assert "crashed" in rungs["aot-inductor"].absent
        assert "not asked for" in rungs["compile"].absent
    assert ladders[0].rungs != ladders[1].rungs, "the second was measured, not remembered"


@pytest.mark.parametrize("opponent_us", [10.0, 50_000.0])
def test_larger_problems_are_called_less_often(opponent_us: float) -> None:
    plans = [
        Plan.for_size(size_bytes, opponent_us) for size_bytes in (1, 64 << 20, 65 << 20, 1 << 30, 5 << 30)
    ]
    calls = [plan.blocks for plan in plans]
    assert calls == sorted(calls, reverse=True)


@pytest.mark.parametrize("opponent_us", [10.0, 50_000.0])
@pytest.mark.parametrize("size_bytes", [1, 100 << 20, 5 << 30])
def test_some_call_of_the_first_process_is_always_compared_with_the_oracle(
    size_bytes: int, opponent_us: float
) -> None:
    plan = Plan.for_size(size_bytes, opponent_us)
    drawn = [plan.audited(0) for _ in range(100)]
    assert all(calls and calls <= set(range(2 * plan.blocks)) for calls in drawn)
    assert len({frozenset(calls) for calls in drawn}) > 1, "nobody knows which"


def test_a_baseline_that_fails_says_why(tmp_path: Path) -> None:
    """The specification runs in the judge and nowhere else."""
    broken = LINEAR.replace(
        "        return",
        "        import sys\n\n        assert 'assay.judge' in sys.modules, 'not here'\n        return",
    )
    path = tmp_path / "problem.py"
    path.write_text(broken)
    honest = LINEAR.replace("class Model(", "class ModelNew(")
    with Judge("cpu", EAGER, tmp_path / "cache") as judge:
        verdict = judge.evaluate(load_problem(path), candidate(honest))
    assert isinstance(verdict, Passed) and verdict.speed is None
    assert verdict.speed_absent == "no baseline ran (eager: crashed: AssertionError: not here)"
