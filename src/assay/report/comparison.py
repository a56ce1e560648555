"""Two runs over the same problems: paired, because problems differ far more than methods do."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.report.outcomes import BEST, Outcome
from assay.report.scores import RESAMPLES, SEED, Estimate, bootstrap, firsts


@dataclass(frozen=True, slots=True)
class Comparison:
    """The second run against the first."""

    problems: int
    """That both have."""
    correct: tuple[float, float]
    gained: tuple[str, ...]
    """Wrong in the first, right in the second."""
    lost: tuple[str, ...]
    chance: float
    """That flips as uneven as these happen where neither is better (McNemar, exact)."""
    difference: Estimate
    """Of the shares that are right."""
    speed: Estimate | None
    """The second's speed over the first's, on problems both solved; a geometric mean."""
    both_timed: int


def compare_runs(first: Sequence[Outcome], second: Sequence[Outcome]) -> Comparison:
    """By one candidate for each problem, as fast_p is scored."""
    a, b = ({one.problem: one for one in firsts(outcomes)} for outcomes in (first, second))
    shared = [name for name in a if name in b]
    gained = tuple(name for name in shared if b[name].passed and not a[name].passed)
    lost = tuple(name for name in shared if a[name].passed and not b[name].passed)
    changes = [float(b[name].passed) - float(a[name].passed) for name in shared]
    logs = [
        math.log(b[name].ratios[BEST] / a[name].ratios[BEST])
        for name in shared
        if a[name].passed and b[name].passed and BEST in a[name].ratios and BEST in b[name].ratios
    ]
    count = max(len(shared), 1)
    return Comparison(
        problems=len(shared),
        correct=(sum(a[n].passed for n in shared) / count, sum(b[n].passed for n in shared) / count),
        gained=gained,
        lost=lost,
        chance=mcnemar(len(gained), len(lost)),
        difference=bootstrap(changes) if changes else Estimate(0.0, 0.0, 0.0),
        speed=_exponential(bootstrap(logs)) if logs else None,
        both_timed=len(logs),
    )


def mcnemar(gained: int, lost: int) -> float:
    """Two-sided and exact: how often a fair coin gives so uneven a split."""
    flips = gained + lost
    if flips == 0:
        return 1.0
    tail = sum(math.comb(flips, k) for k in range(min(gained, lost) + 1)) / 2**flips
    return min(1.0, 2 * tail)


def _exponential(logs: Estimate) -> Estimate:
    return Estimate(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high))


@dataclass(frozen=True, slots=True)
class Explained:
    """Shares of the variance of one figure over problems and methods."""

    category: Estimate
    method: Estimate
    interaction: Estimate


def explained_variance(runs: Mapping[str, Sequence[Outcome]]) -> Explained | None:
    """Of being right, over the problems that all runs have: what category and method account for.

    None for a single run, or where all answers are alike.
    """
    tables = [{one.problem: one for one in firsts(outcomes)} for outcomes in runs.values()]
    if len(tables) < 2:
        return None
    shared = [name for name in tables[0] if all(name in table for table in tables)]
    rows = [(tables[0][n].about.category, [float(t[n].passed) for t in tables]) for n in shared]
    whole = _shares(rows)
    if whole is None:
        return None
    rng = random.Random(SEED)
    draws = [_shares(rng.choices(rows, k=len(rows))) for _ in range(RESAMPLES // 4)]
    known = [draw for draw in draws if draw is not None]
    return Explained(*(_with_interval(whole[k], [draw[k] for draw in known]) for k in range(3)))


def _with_interval(value: float, draws: list[float]) -> Estimate:
    ordered = sorted(draws)
    return Estimate(
        value, ordered[int(0.025 * (len(ordered) - 1))], ordered[math.ceil(0.975 * (len(ordered) - 1))]
    )


def _shares(rows: Sequence[tuple[str, list[float]]]) -> tuple[float, float, float] | None:
    """Category, method and their interaction, as shares of all squares.

    Every method meets every problem, so the two are orthogonal.
    """
    if not rows:
        return None
    methods = len(rows[0][1])
    everything = [value for _, values in rows for value in values]
    mean = sum(everything) / len(everything)
    total = sum((value - mean) ** 2 for value in everything)
    if total == 0:
        return None
    of_method = [sum(values[m] for _, values in rows) / len(rows) for m in range(methods)]
    groups: dict[str, list[list[float]]] = {}
    for category, values in rows:
        groups.setdefault(category, []).append(values)
    by_category = by_both = 0.0
    for members in groups.values():
        size = len(members)
        own = sum(sum(values) for values in members) / (size * methods)
        by_category += size * methods * (own - mean) ** 2
        cells = [sum(values[m] for values in members) / size for m in range(methods)]
        by_both += sum(size * (cells[m] - own - of_method[m] + mean) ** 2 for m in range(methods))
    by_method = sum(len(rows) * (value - mean) ** 2 for value in of_method)
    return by_category / total, by_method / total, by_both / total
