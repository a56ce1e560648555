"""Tools over runs: looking for candidates in a run's file, and judging one into it.

Not covered: adding to a search, which only its own process writes to; its queue takes candidates instead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.agents.desk import Answer, Arguments, Desk
from assay.agents.house import House, Say, read_problem
from assay.agents.judging_tools import policy_of
from assay.agents.summary import verdict_data, verdict_text
from assay.archive import Judged, Listed, Planned, SearchArchive
from assay.candidates import Candidate, read_candidate
from assay.daemon.places import likely_devices
from assay.llm import feedback
from assay.records import AssayError, Interval, Passed, UserError, Verdict

WORKER = "agent"
LABEL = "agents"
MOST_SHOWN = 10
_LINE_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class Found:
    """A judged candidate of a run, with its note."""

    judged: Judged
    note: str

    @property
    def ratio(self) -> Interval | None:
        verdict = self.judged.verdict()
        if isinstance(verdict, Passed) and verdict.speed is not None:
            return verdict.speed.ratio
        return None

    def data(self) -> dict[str, Any]:
        one, ratio = self.judged.candidate, self.ratio
        return {
            "candidate": one.id,
            "problem": one.problem,
            "name": one.name,
            "status": self.judged.status,
            "ratio": None
            if ratio is None
            else {"middle": ratio.middle, "low": ratio.low, "high": ratio.high},
            "note": self.note,
            "parent": one.parent,
        }

    def line(self) -> str:
        one, ratio = self.judged.candidate, self.ratio
        speed = "" if ratio is None else f", {ratio.middle:.3f}x ({ratio.low:.3f} to {ratio.high:.3f})"
        note = f": {self.note}" if self.note else ""
        return f"#{one.id} {one.name} for {one.problem}: {self.judged.status}{speed}{note}"


async def archive_search(desk: Desk, arguments: Arguments, _say: Say) -> Answer:
    run = desk.path(arguments, "run")
    if "candidate" in arguments:
        return await asyncio.to_thread(_one, run, int(arguments["candidate"]))
    return await asyncio.to_thread(_many, run, arguments)


def _read(run: Path) -> list[Found]:
    with SearchArchive(run) as archive:
        notes = {one.candidate.id: one.note for one in archive.drafted()}
        return [Found(one, notes.get(one.candidate.id, "")) for one in archive.judged()]


def _many(run: Path, arguments: Arguments) -> Answer:
    everything = _read(run)
    problem, text = arguments.get("problem"), str(arguments.get("text", "")).lower()
    names = sorted({one.judged.candidate.problem for one in everything})
    if problem is not None and problem not in names:
        raise UserError(f"{run}: nothing is judged for {problem!r}; there are {', '.join(names[:10])}")
    chosen = [one for one in everything if problem in (None, one.judged.candidate.problem)]
    hits = {one.judged.candidate.id: _hit(one, text) for one in chosen} if text else {}
    chosen = [one for one in chosen if not text or hits[one.judged.candidate.id]]
    chosen.sort(key=_rank)
    shown = chosen[: int(arguments.get("limit", MOST_SHOWN))]
    lines = [one.line() + _quoted(hits.get(one.judged.candidate.id, "")) for one in shown]
    head = f"{len(chosen)} of {len(everything)} judged candidates, the best first; {len(shown)} are shown."
    data = {"total": len(chosen), "problems": names, "candidates": [one.data() for one in shown]}
    return Answer("\n".join([head, *lines]), data)


def _rank(one: Found) -> tuple[float, int, int]:
    middle = one.ratio.middle if one.ratio is not None else 0.0
    return -middle, one.judged.status != "passed", one.judged.candidate.id


def _hit(one: Found, text: str) -> str:
    """The first line that holds the text; empty if none does."""
    candidate = one.judged.candidate
    lines = (candidate.name, one.note, *candidate.source.splitlines())
    return next((line.strip()[:_LINE_CHARACTERS] for line in lines if text in line.lower()), "")


def _quoted(line: str) -> str:
    return f"\n    {line}" if line else ""


def _one(run: Path, number: int) -> Answer:
    known = {one.judged.candidate.id: one for one in _read(run)}
    if number not in known:
        raise UserError(f"{run}: no candidate {number} is judged in this run")
    found = known[number]
    candidate = found.judged.candidate
    told = feedback(found.judged.status, found.judged.verdict(), found.judged.record)
    line = _ancestry(known, number)
    children = [one for one in known.values() if one.judged.candidate.parent == number]
    parts = [
        found.line(),
        told,
        "Made from, the nearest first:\n" + _lines(line[1:]) if len(line) > 1 else "",
        "Made into:\n" + _lines(children) if children else "",
        f"Source ({candidate.suffix}):\n{candidate.source}",
    ]
    data = {
        **found.data(),
        "source": candidate.source,
        "suffix": candidate.suffix,
        "feedback": told,
        "lineage": [one.judged.candidate.id for one in line],
        "children": [one.judged.candidate.id for one in children],
    }
    return Answer("\n\n".join(filter(None, parts)), data)


def _ancestry(known: Mapping[int, Found], number: int) -> list[Found]:
    """It and its parents, as far as they are judged."""
    line: list[Found] = []
    next_one: int | None = number
    while next_one in known and known[next_one] not in line:
        line.append(known[next_one])
        next_one = line[-1].judged.candidate.parent
    return line


def _lines(some: Iterable[Found]) -> str:
    return "\n".join(f"- {one.line()}" for one in some)


async def submit_to_run(desk: Desk, arguments: Arguments, say: Say) -> Answer:
    """Judge a candidate and keep it with its verdict."""
    if "problem" not in arguments:
        raise UserError("a run knows its problems by their files: give problem, the path of one")
    entry = _Entry(
        run=desk.path(arguments, "run"),
        problem=desk.path(arguments, "problem"),
        candidate=desk.candidate(arguments),
        policy=policy_of(desk, arguments),
        parent=arguments.get("parent"),
    )
    number, verdict = await desk.judge(lambda: _judge_into(desk.house, entry, say), say)
    text = f"{verdict_text(verdict)}\nKept as candidate {number} of {entry.run}."
    return Answer(text, {"kept_as": number, **verdict_data(verdict)})


@dataclass(frozen=True, slots=True)
class _Entry:
    run: Path
    problem: Path
    candidate: Path
    policy: Mapping[str, Any]
    parent: int | None


def _judge_into(house: House, entry: _Entry, say: Say) -> tuple[int, Verdict]:
    candidate = read_candidate(entry.candidate)
    problem = read_problem(entry.problem)
    with SearchArchive(entry.run, create=True) as archive:
        policy = _settle(archive, house, entry.policy)
        source = problem.specification().source
        archive.add_problem(Listed(problem.name, problem.digest, problem.path, problem.about, source))
        number = archive.add(_planned(archive, problem.name, candidate, entry.parent))
        start = time.monotonic()
        try:
            verdict = house.check(entry.problem, entry.candidate, policy, say)
        except AssayError as error:
            why = f"{type(error).__name__}: {error}"
            archive.keep_failure(number, why, WORKER, time.monotonic() - start)
            raise
        archive.keep_verdict(number, verdict, WORKER, time.monotonic() - start)
        return number, verdict


def _settle(archive: SearchArchive, house: House, policy: Mapping[str, Any]) -> Mapping[str, Any]:
    """The run's own policy, so that its verdicts can be compared; ours where it has none yet."""
    if archive.requests():
        raise UserError(
            f"{archive.path} is a search: hand the candidate to its queue (queue instead of run in `submit`)"
        )
    facts = archive.facts()
    if "device" in facts and _device(facts["device"]) != _device(house.device):
        raise UserError(
            f"{archive.path} is a run on {_device(facts['device'])}: start the server with that --device"
        )
    if "policy" in facts:
        return dict(facts["policy"])
    archive.set_fact("label", LABEL)
    archive.set_fact("device", house.device)
    archive.set_fact("policy", dict(policy))
    return policy


def _device(name: str | None) -> str:
    """What a judge takes for a name, or for none."""
    return likely_devices(name)[-1]


def _planned(archive: SearchArchive, problem: str, candidate: Candidate, parent: int | None) -> Planned:
    known = [*(one.candidate for one in archive.judged()), *archive.waiting()]
    if parent is not None and parent not in {one.id for one in known}:
        raise UserError(f"{archive.path} has no candidate {parent}: leave parent out, or correct it")
    sample = 1 + max((one.sample for one in known if one.problem == problem), default=-1)
    return Planned(problem, sample, 0, candidate.name, candidate.suffix, candidate.source, parent)
