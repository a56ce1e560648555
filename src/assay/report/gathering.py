"""A run read from its archive, with everything that is computed from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
    waiting: int
    failures: tuple[Judged, ...]
    """Where the judge itself failed: they have no verdict and no part in any score."""
    everything: Summary
    sound: Summary
    """Without the flawed problems."""
    flawed: tuple[str, ...]
    sampling: Sampling | None
    turns: tuple[Turn, ...]


def gather(archive: Archive) -> Gathered:
    facts = archive.facts()
    problems = tuple(archive.problems())
    judged = tuple(archive.judged())
    outcomes = outcomes_of(judged, {problem.name: problem.about for problem in problems})
    flawed = tuple(dict.fromkeys(one.problem for one in outcomes if one.flawed))
    asked = [problem.name for problem in problems if not problem.trouble]
    sound = [one for one in outcomes if one.problem not in flawed]
    tally = tallies(sound, lambda one: one.passed)
    return Gathered(
        label=str(facts.get("label", archive.path.stem)),
        facts=facts,
        problems=problems,
        judged=judged,
        outcomes=tuple(outcomes),
        waiting=len(archive.waiting()),
        failures=tuple(one for one in judged if one.status == NO_VERDICT),
        everything=summarise(outcomes, len(asked)),
        sound=summarise(sound, len([name for name in asked if name not in flawed])),
        flawed=flawed,
        sampling=analyse(tally),
        turns=tuple(by_turn(sound)),
    )


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
