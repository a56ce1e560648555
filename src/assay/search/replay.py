"""A recorded search, carried out again: its answers and its measurements, without a model or a device.

Requests are answered by what the recording answered to the same operator with the same parents, or else to
the same operator next. Verdicts are looked up by source.
"""

from __future__ import annotations

import queue
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.archive import UNREADABLE, SearchArchive
from assay.evaluation import Done, Task
from assay.problems import Problem
from assay.records import UserError, digest
from assay.search.protocol import Draft, NewIdea, Operator, Reply, Request, View

LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class _Recorded:
    operator: Operator
    parents: tuple[int, ...]
    reply: Reply


class ReplayProposer:
    """Answers as the recorded proposer did."""

    def __init__(self, name: str, recorded: dict[str, list[_Recorded]]) -> None:
        self.name = name
        self._recorded = recorded
        self.operators = tuple(known[0].operator for known in recorded.values())

    def propose(self, request: Request, view: View) -> Reply:
        known = self._recorded[request.operator.name]
        asked = [
            one for one in view.asked if one.operator.key == request.operator.key and one.id < request.id
        ]
        same = [one for one in known if one.parents == request.parents]
        before = sum(one.parents == request.parents for one in asked)
        if before < len(same):
            return same[before].reply
        if len(asked) < len(known):
            return known[len(asked)].reply
        return Reply(exhausted=True, trouble="the recording holds no more of these")


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
    workers: ReplayWorkers
    device: str
    """Where it was judged."""


def read_recording(path: Path, problem: Problem) -> Recording:
    """The part of a recorded search that is about one problem, which is still what it was."""
    if not path.is_file():
        raise UserError(f"{path}: no such recording: --replay takes the file of an earlier search")
    with SearchArchive(path) as archive:
        replies = _replies(archive, problem.name)
        if not replies:
            raise UserError(f"{path}: holds no search for {problem.name}")
        if problem.digest not in {one.digest for one in archive.problems() if one.name == problem.name}:
            raise UserError(f"{path}: {problem.name} has changed since it was recorded: search anew")
        verdicts = _verdicts(archive)
        told = [
            reply["verdict"]["environment"]["device"] for reply in verdicts.values() if "verdict" in reply
        ]
        proposers = tuple(ReplayProposer(name, known) for name, known in replies.items())
        return Recording(proposers, ReplayWorkers(verdicts), told[0] if told else "cpu")


def _replies(archive: SearchArchive, problem: str) -> dict[str, dict[str, list[_Recorded]]]:
    drafts: dict[int, list[Draft]] = {}
    for one in archive.drafted():
        text = one.candidate
        draft = Draft(text.source, text.suffix, text.name, one.actions, one.note)
        drafts.setdefault(one.request, []).append(draft)
    ideas: dict[int, list[NewIdea]] = {}
    for idea in archive.ideas():
        new = NewIdea(idea.title, idea.hypothesis, idea.mechanism, idea.predicted_gain)
        ideas.setdefault(idea.request, []).append(new)
    found: dict[str, dict[str, list[_Recorded]]] = {}
    for asked in archive.requests():
        if asked.problem != problem or not asked.answered:
            continue
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
        known = found.setdefault(asked.proposer, {}).setdefault(asked.operator, [])
        known.append(_Recorded(operator, asked.parents, reply))
    return found


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
