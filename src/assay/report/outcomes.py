"""One plain row per judged candidate: what all scores and tables are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.archive import NO_VERDICT, Judged
from assay.records import About, Passed, Verdict

BEST = "best"
"""The opponent that is the fastest rung of each problem."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one candidate."""

    problem: str
    about: About
    flawed: bool
    """The problem cannot tell right from wrong: its scores are given apart."""
    sample: int
    turn: int
    status: str
    speed: str = ""
    """"faster", "slower" or "no difference" against the best; empty where it was not timed."""
    ratios: Mapping[str, float] = field(default_factory=dict)
    """By opponent, its time over the candidate's; the fastest of them is "best" once more."""
    surely: tuple[float, float] | None = None
    """The interval of the ratio to the best."""
    opponent: str = ""
    light_percent: float | None = None
    own_share: float | None = None
    cost_usd: float | None = None
    seconds: float = 0.0
    candidate: int = 0
    """Its number in the archive."""

    @property
    def compiled(self) -> bool:
        return self.status not in ("build_failed", "unreadable")

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    def beats(self, p: float, opponent: str = BEST) -> bool:
        """Right, and more than `p` times as fast as the opponent."""
        return self.passed and self.ratios.get(opponent, 0.0) > p


def outcomes_of(judged: Iterable[Judged], abouts: Mapping[str, About]) -> list[Outcome]:
    """All that have a verdict; where the judge failed there is nothing to score."""
    return [_outcome(one, abouts) for one in judged if one.status != NO_VERDICT]


def _outcome(one: Judged, abouts: Mapping[str, About]) -> Outcome:
    candidate, verdict = one.candidate, one.verdict()
    return Outcome(
        problem=candidate.problem,
        about=abouts.get(candidate.problem, About()),
        flawed=verdict is not None and bool(verdict.problem.flaws),
        sample=candidate.sample,
        turn=candidate.turn,
        status=one.status,
        cost_usd=candidate.cost_usd,
        seconds=one.seconds,
        candidate=candidate.id,
        **(_speed_of(verdict) if verdict is not None else {}),
    )


def _speed_of(verdict: Verdict) -> dict[str, Any]:
    own = verdict.census.own_share if verdict.census is not None else None
    speed = verdict.speed if isinstance(verdict, Passed) else None
    if speed is None:
        return {"own_share": own}
    ratios = {rung.name: rung.ratio for rung in speed.rungs if rung.ratio is not None}
    return {
        "own_share": own,
        "speed": speed.outcome,
        "ratios": {**ratios, BEST: speed.ratio.middle},
        "surely": (speed.ratio.low, speed.ratio.high),
        "opponent": speed.opponent,
        "light_percent": speed.roofline.percent if speed.roofline is not None else None,
    }
