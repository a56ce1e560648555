"""Calls behind a gate, on a CPU: nothing holds them back there; they run at once and show what they saw."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from in_process import CPU, Entry, InProcessChild, prepared_case

from assay.correctness import Fingerprinter
from assay.judge import Policy
from assay.judge.desk import Desk
from assay.judge.run import Run, laid_side_by_side
from assay.judge.seat import Seat
from assay.problems import Case, Precision
from assay.problems.problem import LAYOUTS
from assay.records import CandidateFailure
from assay.sandbox import Limits
from assay.worker import Nudge, Pool, Zygote

pytestmark = pytest.mark.usefixtures("one_thread", "undisturbed_memory")
CALLS = 5


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def draw(generator: torch.Generator) -> list[Any]:
    return [torch.randn(4, 8, generator=generator)]


class Gate:
    """Opened by the judge; how long it took is made up."""

    def __init__(self, passed_us: float | None) -> None:
        self._passed_us = passed_us
        self.did: list[str] = []

    def close(self) -> int:
        return 7

    def open(self, lay: Callable[[], None], flush: Callable[[], None]) -> None:
        lay()
        flush()
        self.did.append("opened")

    def passed_us(self, limit_s: float) -> float | None:
        return self._passed_us

    def give_up(self) -> None:
        self.did.append("given up")


class Nudged(InProcessChild):
    """Waits for the device within its calls: goes on when it is nudged."""

    def ask(self, op: str, *args: Any, nudge: Nudge | None = None, **kwargs: Any) -> Any:
        if nudge is not None:
            nudge.what()
        return super().ask(op, *args, **kwargs)

    def kill(self) -> None:
        self.alive = False


class Patient(Nudged):
    def ask(self, op: str, *args: Any, nudge: Nudge | None = None, **kwargs: Any) -> Any:
        return super().ask(op, *args, **kwargs)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    queued: list[str] = []
    monkeypatch.setattr("assay.worker.child.queue_wait", lambda word, number: queued.append("wait"))
    monkeypatch.setattr("assay.worker.child.queue_write", lambda word, number: queued.append("write"))
    desk = Desk(CPU, Fingerprinter(CPU))
    desk._arena("gate", 128)
    monkeypatch.setattr(desk, "flush", lambda: queued.append("flush"))
    yield desk
    desk.close()


class Seated:
    """A seat that is asked for five calls behind a gate."""

    def __init__(self, desk: Desk, folder: Path, kind: type[Nudged], passed_us: float | None) -> None:
        self.entry = Entry(Doubled, lambda k, inputs, module: module(*inputs))
        self.child: Any = kind(self.entry, folder)
        self.gate: Any = Gate(passed_us)
        self.run = Run(prepared_case(Doubled, draw, Precision(), Case("nominal")), 1, CPU, Precision())
        desk.join(self.child)
        desk._gate = self.gate
        self.seat = Seat(self.child, desk, CPU, Policy(), is_module=True)
        self.seat.construct(self.run)
        self.inputs = [draw(torch.Generator().manual_seed(seed)) for seed in range(CALLS)]
        self._calls = laid_side_by_side(desk, self.inputs, "given")

    def burst(self) -> Any:
        return self.seat.gated_burst(self.run, self._calls, [x for (x,) in self.inputs])


def test_inputs_do_not_exist_while_calls_are_queued(desk: Desk, tmp_path: Path) -> None:
    seated = Seated(desk, tmp_path, Patient, 500.0)
    burst = seated.burst()
    assert [float(x.abs().max()) for (x,) in seated.entry.seen] == [0.0] * CALLS
    assert burst.each_us == 100.0 and seated.gate.did == ["opened"]
    assert burst.answers[0].findings == [] and desk.inputs_untouched()


def test_whoever_waits_within_its_calls_answers_and_has_no_time(desk: Desk, tmp_path: Path) -> None:
    seated = Seated(desk, tmp_path, Nudged, 500.0)
    burst = seated.burst()
    assert burst.each_us is None and seated.gate.did == ["opened"]
    for answer, (x,) in zip(burst.answers, seated.inputs, strict=True):
        assert torch.equal(answer.got[0], x * 2)


def test_who_is_never_done_is_killed_before_the_judge_goes_on(desk: Desk, tmp_path: Path) -> None:
    seated = Seated(desk, tmp_path, Patient, None)
    with pytest.raises(CandidateFailure) as caught:
        seated.burst()
    assert caught.value.status == "timed_out"
    assert not seated.child.alive and seated.gate.did == ["opened", "given up"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_withheld_comes_back_as_it_was(desk: Desk, layout: str) -> None:
    tensors = [torch.randn(6, 10), torch.arange(60).reshape(6, 10), torch.randn(10).expand(6, 10)]
    desk.lay(tensors, layout)
    lay_again = desk.withhold(tensors)
    assert not desk.inputs_untouched()
    lay_again()
    assert desk.inputs_untouched()


LIMITS = Limits(4 << 30, 16 << 30, 64, 1 << 28, 1 << 28, 256)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    one = Zygote("cpu")
    yield one
    one.close()


def test_pools_of_one_zygote_end_apart(zygote: Zygote) -> None:
    pools = [Pool(zygote, LIMITS), Pool(zygote, LIMITS)]
    children = [pool.take() for pool in pools]
    children[0].close()
    pools[0].close()
    assert children[1].responds(60.0) and pools[1].take().responds(60.0)
    children[1].close()
    pools[1].close()


@pytest.mark.parametrize("stopped", [True, False])
def test_a_child_that_does_not_answer_is_nudged_once(zygote: Zygote, stopped: bool) -> None:
    pool = Pool(zygote, LIMITS)
    child = pool.take()
    nudges: list[int] = []

    def go_on() -> None:
        nudges.append(child._pid)
        os.kill(child._pid, signal.SIGCONT)

    try:
        if stopped:
            os.kill(child._pid, signal.SIGSTOP)
        patience_s = 0.1 if stopped else 3600.0
        reply = child.ask("facts", timeout_s=60.0, nudge=Nudge(patience_s, go_on))
    finally:
        child.close()
        pool.close()
    assert reply.head["ok"] and len(nudges) == stopped
