"""What turns buy: success by turn, what each turn repaired or broke, and what it did to the speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from assay.report.outcomes import BEST, Outcome


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of all samples that have it."""

    turn: int
    samples: int
    correct: float
    """Of these samples, at this turn."""
    ever_correct: float
    """At this turn or before."""
    repaired: int
    """Wrong the turn before, right now."""
    broken: int
    """Right the turn before, wrong now."""
    speed_change: float | None
    """The geometric mean of what those right both times became faster by; None where nothing was timed."""


def by_turn(outcomes: Sequence[Outcome]) -> list[Turn]:
    """Every turn there is; a single one says nothing about turns."""
    chains = _chains(outcomes)
    turns = sorted({one.turn for one in outcomes})
    return [_turn(turn, chains) for turn in turns]


def _chains(outcomes: Sequence[Outcome]) -> list[dict[int, Outcome]]:
    found: dict[tuple[str, int], dict[int, Outcome]] = {}
    for one in outcomes:
        found.setdefault((one.problem, one.sample), {})[one.turn] = one
    return list(found.values())


def _turn(turn: int, chains: list[dict[int, Outcome]]) -> Turn:
    there = [chain for chain in chains if turn in chain]
    pairs = [(chain[turn - 1], chain[turn]) for chain in there if turn - 1 in chain]
    both = [
        math.log(now.ratios[BEST] / before.ratios[BEST])
        for before, now in pairs
        if before.passed and now.passed and BEST in before.ratios and BEST in now.ratios
    ]
    ever = [any(one.passed for k, one in chain.items() if k <= turn) for chain in there]
    return Turn(
        turn=turn,
        samples=len(there),
        correct=sum(chain[turn].passed for chain in there) / len(there),
        ever_correct=sum(ever) / len(there),
        repaired=sum(not before.passed and now.passed for before, now in pairs),
        broken=sum(before.passed and not now.passed for before, now in pairs),
        speed_change=math.exp(sum(both) / len(both)) if both else None,
    )
