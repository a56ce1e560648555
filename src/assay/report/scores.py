"""The scores of a run, as pure functions over its outcomes.

fast_p is the share of problems whose candidate is right and more than p times as fast as an opponent. A
problem without a candidate counts against it: the share is of the problems, not of the answers.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.report.outcomes import BEST, Outcome

RESAMPLES = 2000
SEED = 20_260
"""Intervals are the same whenever a report is made."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with the interval that holds it with 95 % confidence."""

    value: float
    low: float
    high: float


def finals(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The last turn of every sample."""
    last: dict[tuple[str, int], Outcome] = {}
    for one in outcomes:
        key = (one.problem, one.sample)
        if key not in last or one.turn > last[key].turn:
            last[key] = one
    return list(last.values())


def firsts(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The last turn of the first sample of every problem: what fast_p is scored on."""
    lowest: dict[str, int] = {}
    for one in outcomes:
        lowest[one.problem] = min(one.sample, lowest.get(one.problem, one.sample))
    return [one for one in finals(outcomes) if one.sample == lowest[one.problem]]


def fast_p(outcomes: Sequence[Outcome], p: float, problems: int, opponent: str = BEST) -> float:
    """Of `problems`, the share that one candidate each solves at more than p times the opponent's speed."""
    return sum(one.beats(p, opponent) for one in outcomes) / problems if problems else 0.0


def fast_curve(outcomes: Sequence[Outcome], problems: int, opponent: str = BEST) -> list[tuple[float, float]]:
    """fast_p for all p: the points where it falls, each with its value from there on."""
    ratios = sorted(one.ratios[opponent] for one in outcomes if one.passed and opponent in one.ratios)
    points = [(0.0, len(ratios) / problems if problems else 0.0)]
    for k, ratio in enumerate(ratios, 1):
        points.append((ratio, (len(ratios) - k) / problems))
    return points


def opponents_of(outcomes: Sequence[Outcome]) -> list[str]:
    """Everybody somebody was compared with, the best first."""
    names = dict.fromkeys(name for one in outcomes for name in one.ratios if name != BEST)
    return [BEST, *names] if any(one.ratios for one in outcomes) else []


def geometric_mean(values: Sequence[float]) -> float | None:
    positive = [value for value in values if value > 0]
    return math.exp(sum(map(math.log, positive)) / len(positive)) if positive else None


def pass_at_k(n: int, correct: int, k: int) -> float:
    """The chance that at least one of k samples is right, estimated without bias from n of which so many are.

    One minus the chance to draw k wrong ones: C(n - correct, k) / C(n, k).
    """
    if not 0 <= correct <= n or not 1 <= k <= n:
        raise ValueError(f"pass@{k} cannot be told from {correct} of {n} samples")
    if n - correct < k:
        return 1.0
    return 1.0 - math.prod((n - correct - i) / (n - i) for i in range(k))


def tallies(outcomes: Sequence[Outcome], counts: Callable[[Outcome], bool]) -> list[tuple[int, int]]:
    """For each problem its number of samples and how many of them count, by their last turns."""
    found: dict[str, list[bool]] = {}
    for one in finals(outcomes):
        found.setdefault(one.problem, []).append(counts(one))
    return [(len(marks), sum(marks)) for marks in found.values()]


def mean_pass_at_k(tally: Sequence[tuple[int, int]], k: int) -> Estimate | None:
    """Over the problems that have at least k samples; the interval is a bootstrap over problems."""
    values = [pass_at_k(n, correct, k) for n, correct in tally if n >= k]
    return bootstrap(values) if values else None


def bootstrap(values: Sequence[float], resamples: int = RESAMPLES) -> Estimate:
    """The mean, and the middle 95 % of the means of as many values drawn with replacement."""
    rng = random.Random(SEED)
    count = len(values)
    means = sorted(sum(rng.choices(values, k=count)) / count for _ in range(resamples))
    low, high = means[int(0.025 * (resamples - 1))], means[math.ceil(0.975 * (resamples - 1))]
    return Estimate(sum(values) / count, low, high)


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of one set of problems."""

    problems: int
    candidates: int
    compiled: float
    """Of the candidates, as are the next two."""
    correct: float
    faster: float
    """Called faster than the best baseline, interval and margin considered."""
    solved: int
    """Problems with a right candidate."""
    fast: dict[str, dict[str, float]]
    """By opponent, fast_p at 0, 0.5, 0.8, 1, 1.5 and 2: one candidate for each problem."""
    geometric_mean: dict[str, float | None]
    """By opponent, over the right candidates of `fast`."""
    light_percent: float | None
    """The median share of the speed of light of these."""
    own_share: float | None
    """The median share of the time that is their own code."""
    cost_usd: float | None
    cost_per_solved_usd: float | None
    seconds: float


POINTS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)


def summarise(outcomes: Sequence[Outcome], problems: int) -> Summary:
    scored = firsts(outcomes)
    right = [one for one in scored if one.passed]
    costs = [one.cost_usd for one in outcomes if one.cost_usd is not None]
    solved = len({one.problem for one in outcomes if one.passed})
    cost = sum(costs) if costs else None
    names = opponents_of(outcomes)
    count = max(len(outcomes), 1)
    return Summary(
        problems=problems,
        candidates=len(outcomes),
        compiled=sum(one.compiled for one in outcomes) / count,
        correct=sum(one.passed for one in outcomes) / count,
        faster=sum(one.passed and one.speed == "faster" for one in outcomes) / count,
        solved=solved,
        fast={name: {f"{p:g}": fast_p(scored, p, problems, name) for p in POINTS} for name in names},
        geometric_mean={
            name: geometric_mean([one.ratios[name] for one in right if name in one.ratios]) for name in names
        },
        light_percent=_median([one.light_percent for one in right]),
        own_share=_median([one.own_share for one in right]),
        cost_usd=cost,
        cost_per_solved_usd=cost / solved if cost is not None and solved else None,
        seconds=sum(one.seconds for one in outcomes),
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    middle = len(known) // 2
    return known[middle] if len(known) % 2 else (known[middle - 1] + known[middle]) / 2
