"""The same figures as Markdown and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from assay.report.gathering import Gathered
from assay.report.outcomes import BEST, Outcome
from assay.report.scores import POINTS, opponents_of


def markdown(runs: Sequence[Gathered]) -> str:
    return "\n".join(map(_markdown, runs))


def _markdown(found: Gathered) -> str:
    told = found.everything
    lines = [
        f"# {found.label}",
        "",
        f"{told.candidates} candidates for {told.problems} problems, {told.solved} solved.",
        *_missing(found),
        "",
        "| problems | count | compiled | right | called faster | solved |",
        "|---|---|---|---|---|---|",
    ]
    for name, part in (("all", told), ("without the flawed", found.sound)):
        shares = " | ".join(f"{value:.1%}" for value in (part.compiled, part.correct, part.faster))
        lines.append(f"| {name} | {part.problems} | {shares} | {part.solved} |")
    if found.sound.fast:
        lines += ["", f"| fast_p against | {' | '.join(f'p = {p:g}' for p in POINTS)} | geometric mean |"]
        lines.append("|---" * (len(POINTS) + 2) + "|")
        for name, values in found.sound.fast.items():
            mean = found.sound.geometric_mean[name]
            cells = " | ".join(f"{values[f'{p:g}']:.1%}" for p in POINTS)
            lines.append(f"| {name} | {cells} | {'' if mean is None else f'{mean:.3f}'} |")
    if found.sampling is not None:
        lines += ["", "| k | pass@k | fitted | if independent |", "|---|---|---|---|"]
        for point in found.sampling.curve:
            seen = "" if point.observed is None else f"{point.observed.value:.1%}"
            lines.append(f"| {point.k} | {seen} | {point.fitted:.1%} | {point.independent:.1%} |")
        lines += ["", f"Ceiling {found.sampling.fit.ceiling:.1%}."]
    lines += [
        "",
        "| problem | sample | turn | status | speed | x best | x eager |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in found.outcomes:
        ratios = " | ".join(f"{one.ratios[n]:.3f}" if n in one.ratios else "" for n in (BEST, "eager"))
        lines.append(f"| {one.problem} | {one.sample} | {one.turn} | {one.status} | {one.speed} | {ratios} |")
    return "\n".join(lines) + "\n"


def _missing(found: Gathered) -> list[str]:
    lost = len(found.failures)
    lines = {
        f"{found.waiting} are not judged yet.": found.waiting,
        f"{lost} have no verdict because the judge failed: their problems are left out.": lost,
    }
    return [line for line, count in lines.items() if count]


def comma_separated(runs: Sequence[Gathered]) -> str:
    names = opponents_of([one for run in runs for one in run.outcomes])
    text = io.StringIO()
    writer = csv.writer(text)
    fixed = (
        "run",
        "problem",
        "level",
        "category",
        "regime",
        "flawed",
        "sample",
        "turn",
        "status",
        "speed",
        "opponent",
    )
    figures = ("light_percent", "own_share", "cost_usd", "seconds")
    writer.writerow([*fixed, *(f"times_{name}" for name in names), "low", "high", *figures])
    for run in runs:
        for one in run.outcomes:
            writer.writerow([run.label, *_row(one, names), *_figures(one, figures)])
    return text.getvalue()


def _row(one: Outcome, names: Sequence[str]) -> list[object]:
    about = one.about
    kind = [one.problem, about.level, about.category, about.regime, one.flawed]
    end = [one.sample, one.turn, one.status, one.speed, one.opponent]
    return [*kind, *end, *(one.ratios.get(name, "") for name in names), *(one.surely or ("", ""))]


def _figures(one: Outcome, names: Sequence[str]) -> list[object]:
    return ["" if (value := getattr(one, name)) is None else value for name in names]
