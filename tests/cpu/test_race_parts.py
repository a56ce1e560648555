"""Gate 2 between two children without processes: what is compared, what is noticed, what is asked of whom.

No time is looked at: the contestants are whatever the test says, however long they take.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from in_process import Answering, InProcessRace, codes, prepared_case

from assay.judge.course import Course
from assay.judge.pace import Plan
from assay.judge.preparation import ROUNDS
from assay.judge.prepare import FULL_SIZE
from assay.problems import Case, Precision
from assay.records import CandidateFailure, JudgeFault
from assay.speed.compare import HOPELESS

pytestmark = pytest.mark.usefixtures("one_thread", "undisturbed_memory")
PLAN = Plan.for_size(0, 100.0)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(24, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.linear(x))


def draw(generator: torch.Generator) -> list[Any]:
    return [torch.randn(16, 24, generator=generator)]


def honest(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
    return module(*inputs)


@pytest.fixture(autouse=True)
def to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever happens to be slower by three times must not end these races."""
    monkeypatch.setattr("assay.speed.compare.HOPELESS", 0.0)


@pytest.fixture
def race(tmp_path: Path) -> Callable[..., InProcessRace]:
    case = prepared_case(Model, draw, Precision(), Case("nominal"))

    def make(own: Answering = honest, opponent: Answering = honest, **how: float) -> InProcessRace:
        return InProcessRace(case, own, opponent, tmp_path, **how)

    return make


Races = Callable[..., InProcessRace]


def wrong_code(race: InProcessRace) -> str:
    with pytest.raises(CandidateFailure) as caught:
        race.run()
    return f"{caught.value.status} {caught.value.code}"


def test_an_honest_race_has_all_its_samples(race: Races) -> None:
    made = race()
    evidence = made.run()
    assert evidence.findings == [] and len(evidence.runs) >= 3
    for k, run in enumerate(evidence.runs):
        assert len(run.blocks) == PLAN.blocks and len(run.bursts) == PLAN.bursts
        assert len(run.alone_us) == PLAN.alone * (2 if k == 0 else 1)
        assert len(run.idle) >= PLAN.idle and len(run.warm) == PLAN.warm
    opponents = [head["timing"] for head in made.opponent.heads("call")]
    assert opponents.count("cold") == sum(2 * len(r.blocks) + len(r.alone_us) for r in evidence.runs)


def test_many_calls_settle_a_process_before_it_is_timed(race: Races) -> None:
    made = race()
    made.run()
    asked = [head.get("timing", head["op"]) for head in made.own.asked if head["op"] in ("call", "burst")]
    assert asked[:2] == ["idle", "burst"] and "burst" not in asked[asked.index("warm") : asked.index("cold")]


@pytest.mark.parametrize(("opponent_us", "more"), [(3e3, 12), (20e3, 3), (1e6, 0)])
def test_long_calls_settle_one_by_one_as_far_as_that_is_worth_its_time(
    race: Races, opponent_us: float, more: int
) -> None:
    made = race(opponent_us=opponent_us)
    (first, *_) = made.run().runs
    asked = [head["timing"] for head in made.own.heads("call")]
    assert asked.index("warm") == len(first.idle) + more and made.own.heads("burst") == []


def test_samples_stand_in_the_arm_they_were_taken_from(race: Races) -> None:
    """The opponent tells times of a quarter of an hour, which nobody else does."""
    made = race()
    told = {"device_us": 1e9, "launch_us": 0.0, "host_us": 1e9, "sm_mhz": 0.0}
    made.opponent._forging = lambda op, reply: {**reply, "sample": told} if op == "sample" else reply
    (run, *_) = made.run().runs
    assert {s.device_us for block in run.blocks for s in block.opponent} == {1e9}
    assert all(s.device_us < 1e9 for block in run.blocks for s in block.candidate)
    assert set(run.alone_us) == {1e9} and all(other.host_us == 1e9 for _, other in run.idle)
    assert all(own.host_us < 1e9 for own, _ in run.idle)


def test_both_arms_get_the_same_bytes(race: Races) -> None:
    made = race()
    made.run()
    own, other = ([x[0] for x in child.entry.seen] for child in (made.own, made.opponent))
    shared = [x for x in own if any(torch.equal(x, y) for y in other)]
    assert len(shared) >= 3 * 2 * PLAN.blocks
    assert len({x.numpy().tobytes() for x in own}) == len(own), "an input that came twice"


def test_the_candidate_stands_still_while_the_opponent_runs(race: Races) -> None:
    """Its process is stopped during every call of the opponent, but for those before it lived."""
    made = race()
    lively = []

    def note() -> None:
        if made.own.entry.calls and not made.own.is_frozen:
            lively.append(made.opponent.asked[-1]["op"] if made.opponent.asked else "")

    made.opponent._forging = lambda op, reply: (note() if op in ("call", "burst") else None, reply)[1]
    evidence = made.run()
    # The calls alone come when the candidate's process has ended.
    assert lively.count("burst") == 0
    assert lively.count("call") == sum(len(run.alone_us) for run in evidence.runs) - PLAN.alone


@pytest.mark.parametrize("laying", ["deal", "deal_other", "deal_burst"])
def test_nobody_sees_an_input_before_it_is_asked(
    race: Races, monkeypatch: pytest.MonkeyPatch, laying: str
) -> None:
    """Whoever watches the memory that inputs lie in could begin before its time is taken."""
    made = race()
    standing: list[bool] = []
    lay = getattr(Course, laying)

    def watched(course: Course, *args: Any, **kwargs: Any) -> Any:
        if made.own.heads("construct"):
            standing.append(made.own.is_frozen)
        return lay(course, *args, **kwargs)

    monkeypatch.setattr(Course, laying, watched)
    evidence = made.run()
    # The opponent's inputs while no candidate lives are laid beside nobody.
    beside = sum(len(run.alone_us) for run in evidence.runs) - PLAN.alone
    weights = ROUNDS  # laid when the candidate has been stopped for the opponent's weights
    assert standing.count(False) <= (beside + weights if laying == "deal" else 0)
    assert standing.count(True) >= 3


def test_processes_that_go_on_while_others_are_timed_are_fatal(race: Races) -> None:
    made = race()
    made.own.company = lambda: len(made.own.heads("call")) > 30  # type: ignore[method-assign]
    assert wrong_code(made) == "rejected process_while_timed"


def test_running_while_frozen_is_fatal(race: Races) -> None:
    made = race()
    made.own.ran_frozen_s = 0.1
    assert wrong_code(made) == "rejected ran_while_frozen"


def test_the_moment_that_stopping_takes_is_no_sin(race: Races) -> None:
    made = race()
    made.own.ran_frozen_s, made.own.freezes = 0.1, 400
    assert made.run().findings == []


def test_whoever_comes_second_finds_warm_inputs_so_both_do(race: Races) -> None:
    made = race()
    order: list[str] = []
    for name, child in (("own", made.own), ("other", made.opponent)):
        ask = child.ask

        def noting(op: str, head: Any = None, *, name: str = name, ask: Any = ask, **rest: Any) -> Any:
            if op == "call" and head["timing"] == "warm":
                order.append(name)
            return ask(op, head, **rest)

        child.ask = noting  # type: ignore[method-assign]
    made.run()
    first = order[: 2 * PLAN.warm : 2]
    assert len(first) == PLAN.warm and first.count("own") == PLAN.warm // 2


def test_processes_started_before_are_stopped(race: Races) -> None:
    """Compilers leave workers behind, which is no sin as long as they do not run beside the opponent."""
    made = race()
    stopped: list[int] = []
    made.own.company = lambda: not stopped  # type: ignore[method-assign]
    made.own.stop_company = lambda: stopped.append(1)  # type: ignore[method-assign]
    assert made.run().findings == [] and len(stopped) >= 3


@pytest.mark.parametrize("process", [0, 1, 2])
def test_one_answer_far_off_is_noticed_whenever_it_comes(race: Races, process: int) -> None:
    """One call of some hundred, in any process: every answer is held against the opponent's."""
    made = race()

    def once(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        blocks = [head for head in made.own.heads("call") if head["timing"] == "cold"]
        right = module(*inputs)
        return right if len(blocks) != process * 2 * PLAN.blocks + 20 + process else right + 0.5

    made.own.entry._answering = once
    assert wrong_code(made) == "wrong wrong_when_timed"


def test_an_answer_slightly_off_is_noticed(race: Races) -> None:
    def later(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        return module(*inputs) * (1.0 if call < 12 else 1.0001)

    assert wrong_code(race(later)) == "wrong wrong_when_timed"


@pytest.mark.parametrize("is_large", [False, True])
def test_an_answer_that_was_slightly_off_before_any_was_drawn_is_noticed(
    race: Races, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    """The drawn one comes last in each process, and finds the truth; what came before must have been as near.
    Of large problems not even the first one is checked."""
    monkeypatch.setattr(Course, "is_large", is_large)
    monkeypatch.setattr(Plan, "audited", lambda self, process: {2 * self.blocks - 1})
    monkeypatch.setattr(Plan, "decoy_blocks", lambda self, *, sure: [])

    def early(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        return module(*inputs) * (1.001 if call == 14 else 1.0)

    assert wrong_code(race(early)) == "wrong wrong_when_timed"


def test_an_early_answer_rounded_otherwise_in_one_place_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two right sums in bfloat16 are equal nearly everywhere; the checked call happened to be equal."""
    monkeypatch.setattr(Plan, "audited", lambda self, process: {2 * self.blocks - 1})
    monkeypatch.setattr(Plan, "decoy_blocks", lambda self, *, sure: [])

    class Sum(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum(-1)

    def rows(generator: torch.Generator) -> list[Any]:
        return [torch.randn(2048, 8, generator=generator).bfloat16()]

    def once(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        right = module(*inputs)
        if call == 9:
            right[5] *= 1 + torch.finfo(right.dtype).eps
        return right

    case = prepared_case(Sum, rows, Precision(), Case("nominal"))
    assert InProcessRace(case, once, honest, tmp_path).run().findings == []


def test_a_baseline_that_rounds_by_chance_makes_nobody_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One long sum: the baseline's is a little off at first, and equal when the candidate is checked."""
    monkeypatch.setattr(Plan, "audited", lambda self, process: {2 * self.blocks - 1})
    monkeypatch.setattr(Plan, "decoy_blocks", lambda self, *, sure: [])

    class Mean(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.square().mean()

    def numbers(generator: torch.Generator) -> list[Any]:
        return [torch.randn(65536, generator=generator)]

    def chance(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        return module(*inputs) * (1 + 4e-6 * (call == 5))

    case = prepared_case(Mean, numbers, Precision(), Case("nominal"))
    assert InProcessRace(case, honest, chance, tmp_path).run().findings == []


def test_both_arms_wrong_alike_is_noticed(race: Races) -> None:
    """Near to each other is not enough: some answers are held against the oracle."""

    def stale(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        return torch.zeros(16, 8)

    assert wrong_code(race(stale, stale)) == "wrong wrong_when_timed"


@pytest.mark.parametrize("change", [lambda y: y[:-1], lambda y: y.double(), lambda y: (y, y), lambda y: None])
def test_the_form_counts_in_a_race_too(race: Races, change: Callable[[torch.Tensor], Any]) -> None:
    def later(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        right = module(*inputs)
        return right if call < 20 else change(right)

    assert wrong_code(race(later)) == "wrong wrong_when_timed"


def test_a_wrong_answer_within_a_burst_is_noticed(race: Races) -> None:
    made = race()

    def in_bursts(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        right = module(*inputs)
        hurried = made.own.asked[-1]["op"] == "burst"
        return right + 0.5 if hurried and torch.equal(inputs[0], made.course._burst[-1][0]) else right

    made.own.entry._answering = in_bursts
    assert wrong_code(made) == "wrong wrong_when_timed"


def test_a_suspicious_answer_within_a_burst_is_compared_on_its_own_input(race: Races) -> None:
    """The opponent is a little off there: the candidate's answer is found right, the opponent's is not."""
    made = race()

    def off_in_bursts(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        return module(*inputs) * (1.0001 if made.opponent.asked[-1]["op"] == "burst" else 1.0)

    made.opponent.entry._answering = off_in_bursts
    with pytest.raises(CandidateFailure) as caught:
        made.run()
    assert caught.value.code == "opponent_disturbed"


def test_writing_into_inputs_in_a_race_ends_it(race: Races) -> None:
    """At once: the opponent's answer to what it left there would differ, and tell less."""
    made = race()

    def writing(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        right = module(*inputs)
        if made.own.asked[-1].get("timing") == "warm":
            inputs[0][0, 0] += 1
        return right

    made.own.entry._answering = writing
    assert wrong_code(made) == "rejected input_modified"


def test_what_the_child_replaced_is_a_finding_and_ends_the_race(race: Races) -> None:
    made = race()
    made.own._forging = lambda op, reply: {**reply, "patched": ["time.time"]} if op == "facts" else reply
    evidence = made.run()
    assert "patched_names" in codes(evidence.findings) and len(evidence.runs) == 1


def test_other_contents_come_among_the_timed_ones(race: Races, tmp_path: Path) -> None:
    """Right for the nominal contents alone, in the timed calls alone."""
    nominal = prepared_case(Model, draw, Precision(), Case("nominal"))
    full = Case(f"{FULL_SIZE}mixture", distribution="mixture", hidden=True, derived=True)
    other = prepared_case(Model, lambda g: [x + 50 for x in draw(g)], Precision(), full)
    made = InProcessRace(nominal, shortcut, honest, tmp_path)
    made.course._others = [other.instance]
    made._race._plan = dataclasses.replace(PLAN, decoys=1)
    assert wrong_code(made) == "wrong wrong_when_timed"
    made = InProcessRace(nominal, honest, honest, tmp_path)
    made.course._others = [other.instance]
    made.run()
    assert any(x[0].mean() > 25 for x in made.own.entry.seen)


def test_other_contents_come_in_every_race_however_rare_they_are(tmp_path: Path) -> None:
    """Where a call takes long they are few; a race without any would let a shortcut pass."""
    nominal = prepared_case(Model, draw, Precision(), Case("nominal"))
    full = Case(f"{FULL_SIZE}mixture", distribution="mixture", hidden=True, derived=True)
    other = prepared_case(Model, lambda g: [x + 50 for x in draw(g)], Precision(), full)
    made = InProcessRace(nominal, shortcut, honest, tmp_path)
    made.course._others = [other.instance]
    made._race._plan = dataclasses.replace(PLAN, decoys=1e-9)
    assert wrong_code(made) == "wrong wrong_when_timed"


@pytest.mark.parametrize("size_bytes, opponent_us", [(1 << 20, 50.0), (1 << 20, 5e3), (1 << 28, 50.0)])
def test_other_contents_may_come_before_any_block_and_after_the_last(
    size_bytes: int, opponent_us: float
) -> None:
    plan = Plan.for_size(size_bytes, opponent_us)
    drawn = [plan.decoy_blocks(sure=True) for _ in range(500)]
    assert all(drawn) and {k for blocks in drawn for k in blocks} == set(range(plan.blocks + 1))


def shortcut(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
    right = module(*inputs)
    return right if inputs[0].mean() < 25 else torch.zeros_like(right)


def test_an_opponent_that_fails_beside_the_candidate_is_the_candidates_doing(race: Races) -> None:
    def failing(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        assert call < 12
        return module(*inputs)

    assert wrong_code(race(opponent=failing)) == "rejected opponent_disturbed"


def test_an_opponent_that_fails_alone_is_the_judges_fault(race: Races) -> None:
    def failing(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        raise ValueError("not today")

    with pytest.raises(JudgeFault, match="not today"):
        race(opponent=failing).run()


@pytest.mark.parametrize(
    ("own_us", "worth", "processes"),
    [(1000.0, 0.0, 1), (260.0, 0.0, 3), (100.0, 0.0, 3), (90.0, 1.2, 1), (90.0, 1.1, 3), (80.0, 1.2, 3)],
)
def test_only_the_hopeless_are_let_go_after_one_process(
    race: Races, monkeypatch: pytest.MonkeyPatch, own_us: float, worth: float, processes: int
) -> None:
    monkeypatch.setattr("assay.speed.compare.HOPELESS", HOPELESS)
    made = race(worth=worth)
    for child, time_us in ((made.own, own_us), (made.opponent, 100.0)):
        told = {"device_us": time_us, "launch_us": 0.0, "host_us": time_us, "sm_mhz": 0.0}
        child._forging = lambda op, reply, told=told: {**reply, "sample": told} if op == "sample" else reply
    evidence = made.run()
    assert (len(evidence.runs), evidence.early_out) == (processes, processes == 1)


def test_weights_of_the_race_are_new_and_the_same_for_both(race: Races) -> None:
    made = race()
    made.run()
    ops = [request["op"] for request in made.own.asked if request["op"] in ("state", "call")]
    constructed, raced = made.own.entry.weights[0], made.own.entry.weights[ops.index("call") - 1]
    assert not any(torch.equal(a, b) for a, b in zip(constructed, raced, strict=True))
    final = [child.entry.weights[-1] for child in (made.own, made.opponent)]
    assert all(torch.equal(a, b) for a, b in zip(*final, strict=True))


def test_what_new_weights_cost_is_the_candidates_own(race: Races) -> None:
    """Its first call after each change tells of a thousand seconds more; the opponent's tells nothing new."""
    made = race()
    told = {"device_us": 1.0, "launch_us": 0.0, "host_us": 1.0, "sm_mhz": 0.0}

    def forging(op: str, reply: dict[str, Any]) -> dict[str, Any]:
        if op != "sample":
            return reply
        ops = [request["op"] for request in made.own.asked if request["op"] in ("state", "call", "burst")]
        changed = "burst" in ops and ops[-2:] == ["state", "call"]
        return {**reply, "sample": {**told, "host_us": 1e9} if changed else told}

    made.own._forging = forging
    cost_us = made.run().preparation_us
    assert cost_us is not None and cost_us > 1e8
    made = race()
    made.opponent._forging = lambda op, reply: {**reply, "sample": told} if op == "sample" else reply
    made.own._forging = made.opponent._forging
    assert (made.run().preparation_us or 0.0) < 1e8


def test_stale_weights_after_a_change_are_noticed(race: Races) -> None:
    """The module keeps the weights of the last burst; its answers are right as long as those count."""
    made = race()
    kept: list[torch.nn.Module] = []

    def stale(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        if made.own.asked[-1]["op"] == "burst":
            kept[:] = [copy.deepcopy(module)]
        first = len(made.own.heads("construct")) == 1  # later processes begin with new weights, too
        fresh = made.own.asked[-2]["op"] == "state" and bool(kept) and first
        return (kept[0] if fresh else module)(*inputs)

    made.own.entry._answering = stale
    assert wrong_code(made) == "wrong wrong_when_timed"
