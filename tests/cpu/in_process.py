"""A child without a process: the real session, asked directly, and made to lie where a test wants it to.

What surrounds a child (seat, desk, cases, race) is tested with it in milliseconds. Not covered: confinement,
deaths and time limits, for which real children are needed.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from assay.correctness import calibrate
from assay.judge import Policy
from assay.judge.cases import CaseEvidence, CaseRunner
from assay.judge.course import Course
from assay.judge.prepare import Prepared, PreparedCase
from assay.judge.race import Race, RaceEvidence
from assay.judge.seat import Seat, Watch
from assay.problems import Case, Precision
from assay.records import Finding, ProblemRecord
from assay.worker.child import Session, answer
from assay.worker.entry_types import Construction, StateReport, named_state
from assay.worker.handle import _reported
from assay.worker.protocol import Message

CPU = torch.device("cpu")
NO_COVER = Watch(b"", 1 << 16)
Answering = Callable[[int, list[Any], torch.nn.Module], Any]
"""A candidate: from the number of its call, its inputs and its module to its outputs."""
Forging = Callable[[str, dict[str, Any]], dict[str, Any]]


class Entry:
    """A candidate whose module has the specification's weights, by name."""

    def __init__(self, module: Callable[[], torch.nn.Module], answering: Answering) -> None:
        self._build, self._answering = module, answering
        self.calls = 0
        self.module = module()
        self.weights: list[list[torch.Tensor]] = []
        self.grad_modes: list[str] = []
        self.seen: list[list[Any]] = []
        """Copies of the inputs of each call."""
        self.pointers: list[int] = []
        self.objects: list[torch.Tensor] = []

    def construct(self, how: Construction) -> None:
        torch.manual_seed(how.seed)
        self.module = self._build()

    def load_state(self, state: dict[str, torch.Tensor]) -> StateReport:
        self.module.load_state_dict(state)
        self.weights.append(list(state.values()))
        return StateReport(loaded=tuple(state))

    def kept(self, names: list[str]) -> list[torch.Tensor]:
        return named_state(self.module.state_dict(), names)

    def __call__(self, inputs: list[Any]) -> Any:
        mode = "inference" if torch.is_inference_mode_enabled() else "no_grad"
        self.grad_modes.append("grad" if torch.is_grad_enabled() else mode)
        self.seen.append([i.clone() for i in inputs])
        self.pointers.append(inputs[0].data_ptr())
        self.objects.append(inputs[0])
        self.calls += 1
        return self._answering(self.calls - 1, inputs, self.module)


class InProcessChild:
    """What the judge holds of a child, without one."""

    layers = ()
    alive = True
    extra_memory_bytes = 0
    deadline = math.inf

    def __init__(self, entry: Entry, folder: Path, forging: Forging | None = None) -> None:
        self.entry = entry
        self._session = Session(CPU, folder)
        self._session._entry = entry
        self._forging = forging or (lambda op, reply: reply)
        self.asked: list[dict[str, Any]] = []
        self.is_frozen = False

    def ask(
        self,
        op: str,
        head: dict[str, Any] | None = None,
        *,
        timeout_s: float,
        payload: bytes = b"",
        fds: tuple[int, ...] = (),
        watch: bool = True,
    ) -> Message:
        self.thaw()
        request = json.loads(json.dumps({"op": op, **(head or {})}, allow_nan=False))
        self.asked.append(request)
        given = tuple(os.dup(fd) for fd in fds)
        reply, body = answer(self._session, Message(request, payload, given))
        for fd in given:  # what is mapped stays so; a process of its own would take them along when it ends
            os.close(fd)
        reply = self._forging(op, json.loads(json.dumps(reply, allow_nan=False)))
        if "failure" in reply:
            raise _reported(reply["failure"])
        return Message(reply, body, ())

    def heads(self, op: str) -> list[dict[str, Any]]:
        return [request for request in self.asked if request["op"] == op]

    def watch(self) -> None: ...

    def kill(self) -> None: ...

    def close(self, *, wait: bool = False) -> None:
        self.is_frozen = False

    def output_tail(self) -> str:
        return ""

    def freeze(self) -> None:
        self.is_frozen = True

    freezes = 0
    frozen_s = 0.0
    ran_frozen_s = 0.0

    def stop_company(self) -> None: ...

    def company(self) -> int:
        return 0

    def thaw(self) -> None:
        self.is_frozen = False


class Specified:
    """An instance around a module and one way to draw inputs."""

    init_args: tuple[Any, ...] = ()
    init_kwargs: dict[str, Any] = {}  # noqa: RUF012

    def __init__(
        self,
        module: Callable[[], torch.nn.Module],
        draw: Callable[[torch.Generator], list[Any]],
        case: Case,
    ) -> None:
        self.module, self._draw, self.case = module, draw, case
        self.seeds: list[int] = []

    def build_reference(self, seed: int, device: torch.device) -> torch.nn.Module:
        torch.manual_seed(seed)
        return self.module()

    def make_inputs(self, seed: int, device: torch.device) -> list[Any]:
        self.seeds.append(seed)
        return self._draw(torch.Generator().manual_seed(seed))

    def task_check(self) -> None:
        return None


def prepared_case(
    module: Callable[[], torch.nn.Module],
    draw: Callable[[torch.Generator], list[Any]],
    precision: Precision,
    case: Case,
) -> PreparedCase:
    instance: Any = Specified(module, draw, case)
    found = calibrate(instance, precision, CPU, (1, 2, 3))
    return PreparedCase(instance, found, nominal=not case.derived, free_contents=True)


def run_case(
    case: PreparedCase,
    child: Any,
    precision: Precision,
    calls: int = 3,
    *,
    is_module: bool = True,
    keeps_state: bool = False,
) -> CaseEvidence:
    """Gate 1 on one case."""
    runner = CaseRunner(
        child, CPU, Policy(speed=False), precision, is_module=is_module, keeps_state=keeps_state
    )
    try:
        runner.start_timing(NO_COVER)
        return runner.run(case, calls)
    finally:
        runner.close()


class InProcessStable:
    """One opponent that is always at hand."""

    name = "eager"

    def __init__(self, child: InProcessChild) -> None:
        self._child: Any = child

    def seat(self, index: int, course: Course) -> Seat:
        seat = course.seat(self._child, is_module=True)
        seat.construct(course.run)
        return seat

    def leave(self, seat: Seat, course: Course) -> None:
        course.desk.leave(seat.child)


class InProcessRace:
    """Gate 2 between two children without processes."""

    def __init__(
        self,
        case: PreparedCase,
        own: Answering,
        opponent: Answering,
        folder: Path,
        worth: float = 0.0,
        opponent_us: float = 100.0,
    ) -> None:
        instance: Any = case.instance
        self.own = InProcessChild(Entry(instance.module, own), folder)
        self.opponent = InProcessChild(Entry(instance.module, opponent), folder)
        record = ProblemRecord("p", "native", "p.py", "d", (), "float64")
        prepared = Prepared(record, Precision(), (case,), ())
        shop: Any = SimpleNamespace(
            device=CPU,
            policy=Policy(speed_budget_s=0.0),
            watch=NO_COVER,
            pool=SimpleNamespace(take=lambda: self.own),
            load=lambda *_: None,
        )
        stable: Any = InProcessStable(self.opponent)
        problem: Any = SimpleNamespace(argument_names=(), support_files={})
        candidate: Any = SimpleNamespace(entry="ModelNew")
        self.course = Course(shop, prepared)
        self._race = Race(shop, self.course, stable, problem, candidate, opponent_us, worth)

    def run(self) -> RaceEvidence:
        try:
            return self._race.run(b"", b"")
        finally:
            self.course.close()


def codes(findings: list[Finding]) -> set[str]:
    return {finding.code for finding in findings}
