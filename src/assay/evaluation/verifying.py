"""A published run judged again, as far as one wants: does it hold?

Statuses must come out the same. Speeds are compared where both were timed on devices of one name: the
published interval and the new one must meet, each widened by the margin.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assay.archive import UNREADABLE, Bundle, Judged, Listed
from assay.evaluation.crew import Crew
from assay.evaluation.line import Task
from assay.evaluation.suite import Suite
from assay.problems import ModuleSource
from assay.records import Passed, Speed, UserError, Verdict
from assay.records.decoding import decode_verdict

SYSTEM = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class Checked:
    """One candidate judged again."""

    problem: str
    name: str
    published: str
    found: str
    trouble: str
    """What does not hold; empty if all does."""


def drawn(bundle: Bundle, count: int) -> list[Judged]:
    """Some of those that have a verdict, any of them: whoever publishes cannot know which."""
    verdicts = [one for one in bundle.judged if one.verdict() is not None or one.status == UNREADABLE]
    return SYSTEM.sample(verdicts, min(count, len(verdicts)))


def write_problems(bundle: Bundle, members: Sequence[Judged], folder: Path) -> dict[str, str]:
    """The publisher's own problems of these, as files; returns where each is."""
    places = {}
    for k, problem in enumerate(_needed(bundle, members)):
        place = folder / f"problem_{k}.py"  # names of strangers are no names of files
        place.write_text(problem.source, encoding="utf-8")
        if ModuleSource(place).digest != problem.digest:
            raise UserError(f"the file's {problem.name} is not the problem that it says was judged")
        places[problem.name] = str(place)
    return places


def find_problems(bundle: Bundle, members: Sequence[Judged], suite: Suite) -> dict[str, str]:
    """The same problems in a suite of one's own; returns where each is."""
    places = {}
    for problem in _needed(bundle, members):
        own = suite.problems.get(problem.name)
        if own is None or own.digest != problem.digest:
            what = "is not in" if own is None else "differs from the one in"
            raise UserError(f"{problem.name} {what} your suite: another version of it, or none")
        places[problem.name] = own.path
    return places


def _needed(bundle: Bundle, members: Sequence[Judged]) -> list[Listed]:
    names = {one.candidate.problem for one in members}
    return [problem for problem in bundle.problems if problem.name in names]


def judge_again(
    members: Sequence[Judged], places: dict[str, str], crew: Crew, on_checked: Callable[[Checked], None]
) -> list[Checked]:
    """Every one of them, told as they come."""
    waiting = {}
    for number, one in enumerate(members, 1):
        if one.candidate.problem not in places:
            raise UserError(f"the file holds no problem called {one.candidate.problem}")
        candidate = replace(one.candidate, id=number)
        waiting[number] = one
        crew.submit(Task(candidate, places[one.candidate.problem]))
    checked = []
    while waiting:
        done = crew.next_done()
        if done is not None:
            one = waiting.pop(done.task.candidate.id)
            checked.append(_checked(one, done.reply))
            on_checked(checked[-1])
    return checked


def _checked(one: Judged, reply: dict[str, object]) -> Checked:
    published = one.verdict()
    found = decode_verdict(reply["verdict"]) if "verdict" in reply else None
    status = found.status if found is not None else (UNREADABLE if UNREADABLE in reply else "no_verdict")
    trouble = ""
    if status != one.status:
        trouble = f"published as {one.status}, found {status} {reply.get('failure', '')}".strip()
    elif published is not None and found is not None:
        trouble = _apart(published, found)
    return Checked(one.candidate.problem, one.candidate.name, one.status, status, trouble)


def _apart(published: Verdict, found: Verdict) -> str:
    before, now = _speed(published), _speed(found)
    if before is None or now is None or published.environment.device_name != found.environment.device_name:
        return ""
    margin = max(before.margin, now.margin)
    lower, upper = sorted((before.ratio, now.ratio), key=lambda ratio: ratio.middle)
    if upper.low * (1 - margin) <= lower.high * (1 + margin):
        return ""
    spans = [f"{ratio.low:.3f} to {ratio.high:.3f}" for ratio in (before.ratio, now.ratio)]
    return f"published as {spans[0]} times the best baseline's speed, found {spans[1]}"


def _speed(verdict: Verdict) -> Speed | None:
    return verdict.speed if isinstance(verdict, Passed) else None
