"""The charts of a run."""

from __future__ import annotations

import math

from assay.report.gathering import Gathered
from assay.report.outcomes import BEST, Outcome
from assay.report.scores import fast_curve, firsts, opponents_of
from assay.report.svg import Axis, Line, heat_map, line_chart, percent, scatter

_WIDEST_P = 3.0
_FULL = Axis(0.0, 1.0, "share of problems", percent)


def fast_chart(found: Gathered) -> str:
    """fast_p over p, one line for each opponent; empty where nothing was timed."""
    outcomes = [one for one in found.scored if one.problem not in found.flawed]
    scored, problems = firsts(outcomes), found.sound.problems
    lines = [
        Line("the fastest of them" if name == BEST else name, fast_curve(scored, problems, name), steps=True)
        for name in opponents_of(scored)
    ]
    if not lines:
        return ""
    return line_chart(lines, Axis(0.0, _WIDEST_P, "p, times as fast as"), _FULL, "fast_p by opponent")


def coverage_chart(found: Gathered) -> str:
    """pass@k beside its ceiling; empty where there is one sample each."""
    told = found.sampling
    if told is None:
        return ""
    seen = [(point.k, point.observed) for point in told.curve if point.observed is not None]
    most = max(point.k for point in told.curve)
    lines = [
        Line("observed", [(k, e.value) for k, e in seen], band=[(k, e.low, e.high) for k, e in seen]),
        Line("fitted", [(point.k, point.fitted) for point in told.curve]),
        Line("ceiling", [(1, told.fit.ceiling), (most, told.fit.ceiling)], dashed=True),
        Line("if tries were independent", [(p.k, p.independent) for p in told.curve], dashed=True),
    ]
    x = Axis(1.0, float(max(most, 2)), "k, samples for each problem", logarithmic=True)
    return line_chart(lines, x, _FULL, "pass@k and its ceiling")


def category_chart(found: Gathered) -> str:
    """For each category how much compiled, was right and was fast."""
    groups: dict[str, list[Outcome]] = {}
    for one in firsts(found.scored):
        groups.setdefault(one.about.category or "other", []).append(one)
    if not groups:
        return ""
    timed = any(one.ratios for one in found.outcomes)
    columns = ["compiled", "right", *(["fast_1 eager", "fast_1 best"] if timed else [])]
    names = sorted(groups)
    cells = [[*_shares(groups[name], timed=timed)] for name in names]
    rows = [f"{name} ({len(groups[name])})" for name in names]
    return heat_map(rows, columns, cells, "by category")


def _shares(outcomes: list[Outcome], *, timed: bool) -> list[float | None]:
    count = len(outcomes)
    marks = [[one.compiled for one in outcomes], [one.passed for one in outcomes]]
    if timed:
        marks += [[one.beats(1.0, name) for one in outcomes] for name in ("eager", BEST)]
    return [sum(values) / count for values in marks]


def light_chart(found: Gathered) -> str:
    """Every right candidate: how near to the speed of light, and how it stands to the best baseline."""
    groups: dict[str, list[tuple[float, float, str]]] = {}
    for one in found.outcomes:
        if one.passed and one.light_percent and BEST in one.ratios:
            text = f"{one.problem}: {one.ratios[BEST]:.3f}x the best, {one.light_percent:.0f} % of light"
            groups.setdefault(one.speed, []).append((one.light_percent / 100, one.ratios[BEST], text))
    if not groups:
        return ""
    ratios = [y for points in groups.values() for _, y, _ in points]
    shares = [x for points in groups.values() for x, _, _ in points]
    low, high = min(0.1, _below(min(ratios))), max(10.0, _above(max(ratios)))
    x = Axis(min(0.01, _below(min(shares))), 1.5, "share of the speed of light", percent, logarithmic=True)
    y = Axis(low, high, "times the best baseline's speed", logarithmic=True)
    return scatter(sorted(groups.items()), x, y, "speed of light and baseline")


def _below(value: float) -> float:
    return 10.0 ** math.floor(math.log10(value))


def _above(value: float) -> float:
    return 10.0 ** math.ceil(math.log10(value))


def turn_chart(found: Gathered) -> str:
    """Success by turn; empty where there is one."""
    if len(found.turns) < 2:
        return ""
    lines = [
        Line("right at this turn", [(t.turn, t.correct) for t in found.turns]),
        Line("right so far", [(t.turn, t.ever_correct) for t in found.turns]),
    ]
    last = float(max(turn.turn for turn in found.turns))
    return line_chart(
        lines, Axis(0.0, last, "turn", whole=True), Axis(0.0, 1.0, "share of samples", percent), "by turn"
    )
