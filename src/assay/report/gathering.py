"""A run read from its archive, with everything that is computed from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.archive import NO_VERDICT, Archive, Judged, Listed
from assay.report.outcomes import Outcome, outcomes_of
from assay.report.sampling import Sampling, analyse
from assay.report.scores import Summary, summarise, tallies
from assay.report.serial import Turn, by_turn


@dataclass(frozen=True, slots=True)
class Gathered:
    """A run and its scores."""

    label: str
    facts: Mapping[str, Any]
    problems: tuple[Listed, ...]
    judged: tuple[Judged, ...]
    outcomes: tuple[Outcome, ...]
    """All that have a verdict."""
    scored: tuple[Outcome, ...]
    """Those of problems that nothing is missing of."""
    waiting: int
    failures: tuple[Judged, ...]
    """Where the judge itself failed: their problems have no part in any score."""
    everything: Summary
    sound: Summary
    """Without the flawed problems."""
    flawed: tuple[str, ...]
    sampling: Sampling | None
    turns: tuple[Turn, ...]


def gather_all(archives: Sequence[Archive]) -> list[Gathered]:
    """Several runs, to be shown together: numbers of candidates and labels are told apart."""
    found: list[Gathered] = []
    for archive in archives:
        numbered_from = max((one.candidate.id for run in found for one in run.judged), default=0)
        found.append(gather(archive, numbered_from))
    labels = [run.label for run in found]
    return [
        replace(run, label=f"{run.label} ({archive.path})") if labels.count(run.label) > 1 else run
        for run, archive in zip(found, archives, strict=True)
    ]


def gather(archive: Archive, numbered_from: int = 0) -> Gathered:
    facts = archive.facts()
    problems = tuple(archive.problems())
    judged = tuple(_renumbered(one, numbered_from) for one in archive.judged())
    outcomes = outcomes_of(judged, {problem.name: problem.about for problem in problems})
    flawed = tuple(dict.fromkeys(one.problem for one in outcomes if one.flawed))
    waiting = archive.waiting()
    # A problem whose candidates all wait counts neither for nor against anybody yet.
    not_yet = {one.problem for one in waiting} - {one.problem for one in outcomes}
    failures = tuple(one for one in judged if one.status == NO_VERDICT)
    # Nor one on which the judge failed: another sample must not stand in for the one that has no verdict.
    unknown = not_yet | {one.candidate.problem for one in failures}
    asked = [problem.name for problem in problems if not problem.trouble and problem.name not in unknown]
    scored = [one for one in outcomes if one.problem not in unknown]
    sound = [one for one in scored if one.problem not in flawed]
    tally = tallies(sound, lambda one: one.passed)
    return Gathered(
        label=str(facts.get("label", archive.path.stem)),
        facts=facts,
        problems=problems,
        judged=judged,
        outcomes=tuple(outcomes),
        scored=tuple(scored),
        waiting=len(waiting),
        failures=failures,
        everything=summarise(scored, len(asked)),
        sound=summarise(sound, len([name for name in asked if name not in flawed])),
        flawed=flawed,
        sampling=analyse(tally),
        turns=tuple(by_turn(sound)),
    )


def _renumbered(one: Judged, numbered_from: int) -> Judged:
    candidate = one.candidate
    parent = None if candidate.parent is None else candidate.parent + numbered_from
    return replace(one, candidate=replace(candidate, id=candidate.id + numbered_from, parent=parent))


def summary_of(archive: Archive) -> dict[str, Any]:
    """The figures alone, for `--json`."""
    found = gather(archive)
    return {
        "run": str(archive.path),
        "label": found.label,
        "all_problems": found.everything,
        "sound_problems": found.sound,
        "flawed": list(found.flawed),
        "troubled": {problem.name: problem.trouble for problem in found.problems if problem.trouble},
        "waiting": found.waiting,
        "judge_failures": len(found.failures),
        "sampling": found.sampling,
        "turns": list(found.turns),
    }
