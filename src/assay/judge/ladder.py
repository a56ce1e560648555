"""The baseline ladder of one problem: every rung in a process of its own, on the same inputs, in turns.

A rung that does not compile, does not run or gives wrong results is absent, with its reason; it is never
dropped in silence. The rungs compile at the same time, which shortens the wait and lengthens the first calls
that are reported; they are timed one at a time.
"""

from __future__ import annotations

import random
import secrets
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from assay.correctness import perturbed
from assay.judge.course import Course
from assay.judge.run import compare
from assay.judge.seat import Seat
from assay.judge.stable import Stable, load_opponent
from assay.judge.workshop import Workshop
from assay.problems import Problem
from assay.records import CandidateFailure, JudgeFault, Rung, Times
from assay.speed.compare import time_interval
from assay.speed.opponents import NAMES, QUICK_NAMES, Opponent, make_opponent
from assay.speed.samples import Timed

NEAR = 1.005
"""Rungs this close are the same; the simpler one is taken."""
ROUNDS, LARGE_ROUNDS, OTHER_ROUNDS = 15, 5, 3
SHARED_TUNING = ("max-autotune-no-cudagraphs", "max-autotune")
"""The second finds what the first one tuned, and starts after it."""


@dataclass(slots=True)
class Climber:
    """One rung on its way."""

    opponent: Opponent
    absent: str = ""
    seat: Seat | None = None
    first_call_ms: float = 0.0
    samples: dict[str, list[Timed]] = field(default_factory=lambda: {"cold": [], "warm": [], "idle": []})

    @property
    def name(self) -> str:
        return self.opponent.name

    def there(self) -> Seat:
        if self.seat is None:
            raise JudgeFault(f"{self.name} has no process")
        return self.seat


def rung_names(shop: Workshop) -> tuple[str, ...]:
    return shop.policy.rungs or (NAMES if shop.device.type == "cuda" else QUICK_NAMES)


def climb(
    shop: Workshop, course: Course, problem: Problem, caches: dict[str, bytes]
) -> tuple[tuple[Rung, ...], Stable | None]:
    """Measure every rung; the fastest one's process lives on.

    Args:
        caches: what each rung compiled before, by name; those that compile now are added.
    """
    climbers = _start(shop, course, problem, rung_names(shop), caches)
    running = [climber for climber in climbers if climber.seat is not None]
    running = [climber for climber in running if _is_right(course, climber)]
    shop.pool.settle()
    _take_turns(course, running)
    best = _fastest(running)
    for climber in running:
        if climber is not best:
            _dismiss(course, climber)
    stable = None
    if best is not None:
        stable = Stable(shop, problem, best.opponent, caches.get(best.name, b""))
        stable.adopt(best.there(), course)
    return tuple(_rung(climber) for climber in climbers), stable


def compile_rungs(
    shop: Workshop, course: Course, problem: Problem, names: Sequence[str], caches: dict[str, bytes]
) -> None:
    """Only compile: what the named rungs leave behind goes into `caches`."""
    for climber in _start(shop, course, problem, names, caches):
        if climber.seat is not None:
            _dismiss(course, climber)


def _start(
    shop: Workshop, course: Course, problem: Problem, names: Sequence[str], caches: dict[str, bytes]
) -> list[Climber]:
    climbers = [Climber(make_opponent(problem, name)) for name in NAMES]
    shop.trusted.warm(len(names))
    for climber in climbers:
        climber.absent = climber.opponent.absent
        if climber.name not in names:
            climber.absent = "not asked for: name it with --rungs"
        if not climber.absent:
            _seat(shop, course, climber, problem, caches.get(climber.name, b""))
    _compile(shop, course, climbers, caches)
    return climbers


def _seat(shop: Workshop, course: Course, climber: Climber, problem: Problem, cache: bytes) -> None:
    child = shop.trusted.take()
    climber.seat = course.seat(child, is_module=problem.entry == "ModelNew")
    try:
        child.ask("refill", payload=cache, timeout_s=shop.policy.load_timeout_s)
        load_opponent(shop, child, climber.opponent, problem)
        climber.seat.construct(course.run)
    except CandidateFailure as failure:
        _dismiss(course, climber, failure)


def _dismiss(course: Course, climber: Climber, why: CandidateFailure | str = "") -> None:
    seat = climber.there()
    climber.seat = None
    if isinstance(why, CandidateFailure):
        why = f"{why.status}: {(why.message.splitlines() or [why.code])[0]}"
    climber.absent = why
    course.desk.leave(seat.child)
    seat.child.close()


def _compile(shop: Workshop, course: Course, climbers: Sequence[Climber], caches: dict[str, bytes]) -> None:
    """First calls, all at once: compilers use the processors while others wait."""
    reference = course.run.reference
    state = reference.state()
    if state:
        state = perturbed(state, reference.parameter_names(), secrets.randbits(62))
        reference.load_state(state)
    running = [climber for climber in climbers if climber.seat is not None]
    for climber in running:
        if state:
            climber.there().send_state(state)
    course.deal()
    tuned = [climber for climber in running if climber.name in SHARED_TUNING]
    queues = [[climber] for climber in running if climber.name not in SHARED_TUNING] + [tuned]
    with ThreadPoolExecutor(len(queues)) as threads:
        for failed in threads.map(lambda queue: _first_calls(shop, course, queue, caches), queues):
            for climber, failure in failed:
                _dismiss(course, climber, failure)


def _first_calls(
    shop: Workshop, course: Course, queue: Sequence[Climber], caches: dict[str, bytes]
) -> list[tuple[Climber, CandidateFailure]]:
    failed = []
    tuned = b""
    for climber in queue:
        child = climber.there().child
        try:
            if tuned and climber.name not in caches:
                child.ask("refill", payload=tuned, timeout_s=shop.policy.load_timeout_s)
            sample = course.first_call(climber.there(), shop.policy.baseline_timeout_s)
            climber.first_call_ms = sample.host_us / 1e3
            if climber.name not in caches:
                caches[climber.name] = child.ask("caches", timeout_s=shop.policy.load_timeout_s).payload
            tuned = caches[climber.name]
        except CandidateFailure as failure:
            failed.append((climber, failure))
    return failed


def _is_right(course: Course, climber: Climber) -> bool:
    """A compiler can be wrong too; then it is no opponent."""
    course.deal()
    try:
        answer = course.ask(climber.there(), "cold")
    except CandidateFailure as failure:
        _dismiss(course, climber, failure)
        return False
    report = compare(course.run, course.inputs, answer)
    if not report.ok:
        _dismiss(course, climber, f"gives wrong results: {report.message}")
    return report.ok


def _take_turns(course: Course, climbers: Sequence[Climber]) -> None:
    """Rounds in which every rung answers the same input, each round in another order."""
    rounds = LARGE_ROUNDS if course.is_large else ROUNDS
    for mode, count in (("warm", OTHER_ROUNDS), ("idle", OTHER_ROUNDS), ("cold", rounds)):
        for _ in range(count):
            course.deal()
            for climber in random.sample(list(climbers), len(climbers)):
                climber.samples[mode].append(course.ask(climber.there(), mode).time())


def _fastest(climbers: Sequence[Climber]) -> Climber | None:
    """The first of those that are as good as the best: they are ordered from simple to involved."""
    if not climbers:
        return None
    best = min(_cold_us(climber) for climber in climbers)
    return next(climber for climber in climbers if _cold_us(climber) <= best * NEAR)


def _cold_us(climber: Climber) -> float:
    return statistics.median(sample.device_us for sample in climber.samples["cold"])


def _rung(climber: Climber) -> Rung:
    rung = Rung(climber.name, climber.opponent.settings, climber.absent)
    if not climber.samples["cold"]:
        return rung
    samples = climber.samples
    times = Times(
        device_us=_cold_us(climber),
        warm_us=statistics.median(sample.device_us for sample in samples["warm"]),
        latency_us=statistics.median(sample.host_us for sample in samples["idle"]),
        first_call_ms=climber.first_call_ms,
    )
    return replace(rung, times=times, device_us=time_interval([s.device_us for s in samples["cold"]]))
