"""A run's scores for a person at a terminal."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.archive import Archive
from assay.report import Gathered, gather
from assay.report.scores import POINTS, Summary


def show_run(console: Console, archive: Archive) -> None:
    found = gather(archive)
    _show_counts(console, found)
    if found.sound.fast:
        console.print(_fast_table(found.sound))
    _show_sampling(console, found)
    if len(found.turns) > 1:
        console.print(_turn_table(found))
    console.print(f"run: {escape(str(archive.path))}", highlight=False, soft_wrap=True)


def _show_counts(console: Console, found: Gathered) -> None:
    told = found.everything
    console.print(
        f"[bold]{escape(found.label)}[/]: {told.candidates} candidates for {told.problems} problems, "
        f"{told.solved} solved",
        highlight=False,
        soft_wrap=True,
    )
    statuses = Counter(one.status for one in found.outcomes)
    console.print(", ".join(f"{name} {count}" for name, count in statuses.most_common()), highlight=False)
    if found.flawed:
        sound = found.sound
        console.print(
            f"{len(found.flawed)} problems are flawed: {sound.solved} of {sound.problems} solved without",
            highlight=False,
        )
    if found.failures:
        console.print(f"[red]{len(found.failures)} without a verdict: the judge failed[/] (--retry-failures)")
        told_why = escape(str(found.failures[0].record.get("message", "")))
        console.print(f"  {told_why}", highlight=False, soft_wrap=True)
    if found.waiting:
        console.print(f"{found.waiting} are not judged yet")
    if told.cost_usd is not None:
        each = f", {told.cost_per_solved_usd:.3f} for each solved problem" if told.cost_per_solved_usd else ""
        console.print(f"cost {told.cost_usd:.2f} USD{each}", highlight=False)


def _fast_table(told: Summary) -> Table:
    table = Table(title="fast_p: share of problems that are right and more than p times as fast as", box=None)
    table.add_column("opponent")
    for p in POINTS:
        table.add_column(f"p = {p:g}", justify="right")
    table.add_column("geometric mean", justify="right")
    for name, shares in told.fast.items():
        mean = told.geometric_mean[name]
        cells = [f"{shares[f'{p:g}']:.1%}" for p in POINTS]
        table.add_row(name, *cells, "" if mean is None else f"{mean:.3f}")
    return table


def _show_sampling(console: Console, found: Gathered) -> None:
    told = found.sampling
    if told is None:
        return
    known = [point for point in told.curve if point.observed is not None]
    text = ", ".join(f"{point.observed.value:.1%} at k = {point.k}" for point in known if point.observed)
    console.print(f"pass@k: {text}", highlight=False)
    console.print(
        f"ceiling {told.fit.ceiling:.1%} ({told.fit.hopeless:.1%} of the problems at zero); "
        f"sample {told.worth_k} is the last one that solves a problem in a hundred more",
        highlight=False,
    )


def _turn_table(found: Gathered) -> Table:
    table = Table(title="by turn", box=None)
    for name in ("turn", "samples", "right", "right so far", "repaired", "broken", "speed"):
        table.add_column(name, justify="right")
    for turn in found.turns:
        speed = "" if turn.speed_change is None else f"{turn.speed_change:.3f}x"
        table.add_row(
            str(turn.turn),
            str(turn.samples),
            f"{turn.correct:.1%}",
            f"{turn.ever_correct:.1%}",
            str(turn.repaired),
            str(turn.broken),
            speed,
        )
    return table
