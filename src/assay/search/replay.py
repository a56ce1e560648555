"""A recorded search, carried out again: its answers and its measurements, without a model or a device.

What is asked for, and from which parents, is recorded too: when answers came decided about it, and they come
at another pace now. Requests are made one at a time in the order in which they were answered, so that
candidates keep their numbers. Verdicts are looked up by source. Not covered: what was pinned and banned.
"""

from __future__ import annotations

import math
import queue
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.archive import UNREADABLE, Asked, SearchArchive
from assay.evaluation import Done, Task
from assay.problems import Problem
from assay.records import UserError, digest
from assay.search.driver import PERSON
from assay.search.finish import ABLATE, POLISH
from assay.search.protocol import Draft, NewIdea, Operator, Reply, Request, View

LOOK_EVERY_S = 0.05
_OWN = {PERSON: "injected", POLISH: "polished", ABLATE: "ablated"}
"""What a search asks of itself, by the names that it has in a replay: a replay asks such things as well."""


@dataclass(frozen=True, slots=True)
class _Made:
    """A candidate or an idea of the recording: the answer that brought it, and its place there."""

    request: int
    place: int


@dataclass(frozen=True, slots=True)
class _Recorded:
    operator: Operator
    parents: tuple[_Made, ...]
    idea: _Made | None
    reply: Reply


class _Script:
    """What was asked and answered, in the order of the answers."""

    def __init__(self, recorded: dict[int, _Recorded]) -> None:
        self.all = tuple(recorded.values())
        self._place = {number: k for k, number in enumerate(recorded)}
        self.keys = {one.operator.key for one in self.all}

    def asked(self, view: View) -> list[Request]:
        """The requests of the replay that are recorded ones: they come first to last."""
        return [one for one in view.asked if one.operator.key in self.keys]

    def candidate(self, made: _Made, view: View) -> int:
        request = self.asked(view)[self._place[made.request]].id
        return [one.id for one in view.members if one.request == request][made.place]

    def idea(self, made: _Made, view: View) -> int:
        request = self.asked(view)[self._place[made.request]].id
        return [one.id for one in view.ideas if one.request == request][made.place]


class ReplayStrategy:
    """Asks for what was asked for."""

    name = "replay"

    def __init__(self, script: _Script) -> None:
        self._script = script

    def next(self, number: int, view: View, operators: tuple[Operator, ...]) -> Request | None:
        script, done = self._script, len(self._script.asked(view))
        if view.open or done >= len(script.all):
            return None
        one = script.all[done]
        parents = tuple(script.candidate(made, view) for made in one.parents)
        idea = None if one.idea is None else script.idea(one.idea, view)
        return Request(number, one.operator, parents, idea)


class ReplayProposer:
    """Answers as the recorded proposer did."""

    def __init__(self, name: str, script: _Script) -> None:
        self.name = name
        self._script = script
        self.operators = tuple({one.operator: None for one in script.all if one.operator.proposer == name})

    def propose(self, request: Request, view: View) -> Reply:
        before = sum(one.id < request.id for one in self._script.asked(view))
        return self._script.all[before].reply


class ReplayWorkers:
    """Verdicts by source, as they were recorded."""

    def __init__(self, verdicts: dict[str, dict[str, Any]]) -> None:
        self._verdicts = verdicts
        self._done: queue.Queue[Done] = queue.Queue()

    def submit(self, task: Task) -> None:
        one = task.candidate
        reply = self._verdicts.get(_key(one.source, one.suffix))
        if reply is None:
            reply = {UNREADABLE: "the recording never judged this source", "seconds": 0.0}
        self._done.put(Done(task, "recording", reply))

    def next_done(self) -> Done | None:
        try:
            return self._done.get(timeout=LOOK_EVERY_S)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Nothing is under way."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A search that was recorded."""

    proposers: tuple[ReplayProposer, ...]
    strategy: ReplayStrategy
    workers: ReplayWorkers
    device: str
    """Where it was judged."""
    script: _Script

    def goes_on_in(self, archive: SearchArchive) -> bool:
        """Whether the archive holds a replay of this one, or nothing yet."""
        mine = {one.id for one in archive.requests() if f"{one.proposer}/{one.operator}" in self.script.keys}
        kept = [one.candidate.source for one in archive.drafted() if one.request in mine]
        recorded = [draft.source for one in self.script.all for draft in one.reply.drafts]
        return kept == recorded[: len(kept)]


def read_recording(path: Path, problem: Problem) -> Recording:
    """The part of a recorded search that is about one problem, which is still what it was."""
    if not path.is_file():
        raise UserError(f"{path}: no such recording: --replay takes the file of an earlier search")
    with SearchArchive(path) as archive:
        script = _Script(_recorded(archive, problem.name))
        if not script.all:
            raise UserError(f"{path}: holds no search for {problem.name}")
        if problem.digest not in {one.digest for one in archive.problems() if one.name == problem.name}:
            raise UserError(f"{path}: {problem.name} has changed since it was recorded: search anew")
        verdicts = _verdicts(archive)
        told = [
            reply["verdict"]["environment"]["device"] for reply in verdicts.values() if "verdict" in reply
        ]
        names = dict.fromkeys(one.operator.proposer for one in script.all)
        proposers = tuple(ReplayProposer(name, script) for name in names)
        device = told[0] if told else "cpu"
        return Recording(proposers, ReplayStrategy(script), ReplayWorkers(verdicts), device, script)


def _recorded(archive: SearchArchive, problem: str) -> dict[int, _Recorded]:
    """What was answered, by the number of the request, in the order of the answers."""
    drafts: dict[int, list[Draft]] = {}
    candidates: dict[int, _Made] = {}
    first: dict[int, int] = {}
    for one in archive.drafted():
        text, mine = one.candidate, drafts.setdefault(one.request, [])
        candidates[text.id] = _Made(one.request, len(mine))
        first.setdefault(one.request, text.id)
        mine.append(Draft(text.source, text.suffix, text.name, one.actions, one.note))
    ideas: dict[int, list[NewIdea]] = {}
    thought: dict[int, _Made] = {}
    for idea in archive.ideas():
        new = ideas.setdefault(idea.request, [])
        thought[idea.id] = _Made(idea.request, len(new))
        new.append(NewIdea(idea.title, idea.hypothesis, idea.mechanism, idea.predicted_gain))
    found = {}
    for asked in _as_answered(archive, problem, first):
        reply = Reply(
            tuple(drafts.get(asked.id, ())),
            tuple(ideas.get(asked.id, ())),
            archive.exchange(asked.id),
            asked.cost_usd,
            asked.trouble,
            asked.exhausted,
            seconds=asked.seconds,
        )
        operator = Operator(asked.proposer, asked.operator, asked.needs)
        operator = replace(operator, name=_OWN.get(operator, operator.name))
        parents = tuple(candidates[number] for number in asked.parents)
        of_idea = None if asked.idea is None else thought[asked.idea]
        found[asked.id] = _Recorded(operator, parents, of_idea, reply)
    return found


def _as_answered(archive: SearchArchive, problem: str, first: dict[int, int]) -> list[Asked]:
    """By the first candidate of each; one without any comes before all that was asked later is answered."""
    asked = [one for one in archive.requests() if one.problem == problem and one.answered]
    when: dict[int, float] = {}
    next_candidate = math.inf
    for one in reversed(asked):
        next_candidate = min(next_candidate, first.get(one.id, math.inf))
        when[one.id] = first.get(one.id, next_candidate)
    return sorted(asked, key=lambda one: (when[one.id], one.id))


def _verdicts(archive: SearchArchive) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for one in archive.judged():
        reply: dict[str, Any] = {"verdict": dict(one.record), "seconds": one.seconds}
        if one.verdict() is None:
            reply = {UNREADABLE: str(one.record.get("message", "")), "seconds": one.seconds}
        found[_key(one.candidate.source, one.candidate.suffix)] = reply
    return found


def _key(source: str, suffix: str) -> str:
    return digest(suffix, source)
