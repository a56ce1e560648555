"""`assay report RUN` and `assay compare RUN RUN`."""

from __future__ import annotations

import contextlib
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from assay.archive import Archive, write_whole
from assay.records import UserError
from assay.report import Gathered, gather_all
from assay.report.comparison import compare_runs, explained_variance
from assay.report.page import page
from assay.report.plain import comma_separated, markdown

FORMS = {"html": page, "md": markdown, "csv": comma_separated}
_MOST_NAMES = 12


@click.command()
@click.argument("runs", type=click.Path(), nargs=-1, required=True)
@click.option("--format", "form", type=click.Choice(list(FORMS)), default="html", show_default=True)
@click.option("--out", type=click.Path(dir_okay=False), help="Default: beside the first run.")
@click.option("--open", "show", is_flag=True, help="Open it in a browser.")
def report(runs: tuple[str, ...], form: str, out: str | None, show: bool) -> None:
    """Write what RUNS amount to as one file, several of them side by side."""
    path = Path(out) if out else Path(runs[0]).with_suffix(f".{form}")
    write_whole(path, FORMS[form](read_runs(runs)).encode(), unlike=[Path(run) for run in runs])
    click.echo(f"report: {path}")
    if show:
        webbrowser.open(path.resolve().as_uri())


@click.command()
@click.argument("first", type=click.Path())
@click.argument("second", type=click.Path())
@click.option("--force", is_flag=True, help="Compare even if the environments differ.")
def compare(first: str, second: str, force: bool) -> None:
    """Compare two runs over the same problems: what the SECOND gained and lost against the FIRST."""
    runs = read_runs((first, second))
    _check_alike(runs, force=force)
    told = compare_runs(*(run.scored for run in runs))
    if not told.problems:
        raise UserError("the two runs have no problem in common")
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"[bold]{escape(runs[1].label)}[/] against [bold]{escape(runs[0].label)}[/], "
        f"{told.problems} problems of both"
    )
    console.print(
        f"right: {told.correct[0]:.1%} before, {told.correct[1]:.1%} now; difference "
        f"{told.difference.value:+.1%} (95 %: {told.difference.low:+.1%} to {told.difference.high:+.1%}), "
        f"by chance with p = {told.chance:.3f}"
    )
    for word, names in (("gained", told.gained), ("lost", told.lost)):
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        console.print(f"{word} {len(names)}: {escape(', '.join(names[:_MOST_NAMES]))}{more}")
    if told.speed is not None:
        speed = told.speed
        console.print(
            f"speed on {told.both_timed} problems that both solve: {speed.value:.3f} times "
            f"(95 %: {speed.low:.3f} to {speed.high:.3f})"
        )
    explained = explained_variance({"first": runs[0].scored, "second": runs[1].scored})
    if explained is not None:
        parts = {
            "category": explained.category,
            "run": explained.method,
            "both together": explained.interaction,
        }
        words = ", ".join(f"{name} {e.value:.1%} ({e.low:.1%} to {e.high:.1%})" for name, e in parts.items())
        console.print(f"variance of being right: {words}")


def read_runs(paths: Sequence[str]) -> list[Gathered]:
    if len({Path(path).resolve() for path in paths}) < len(paths):
        raise UserError("one run is named twice")
    with contextlib.ExitStack() as stack:
        found = gather_all([stack.enter_context(Archive(Path(path))) for path in paths])
    for path, run in zip(paths, found, strict=True):
        if not run.judged:
            raise UserError(f"{path}: nothing is judged in this run yet")
    return found


def _check_alike(runs: Sequence[Gathered], *, force: bool) -> None:
    """Times of two machines say nothing about two methods."""
    first, second = (
        {name: value for one in run.judged for name, value in one.record.get("environment", {}).items()}
        for run in runs
    )
    differing = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    words = [f"{name}: {first.get(name)} and {second.get(name)}" for name in differing]
    policies = [run.facts.get("policy") for run in runs]
    if policies[0] != policies[1]:
        words.append(f"policy: {policies[0]} and {policies[1]}")
    digests = [{problem.name: problem.digest for problem in run.problems} for run in runs]
    words += [
        f"the problem {name} has changed"
        for name in sorted(digests[0].keys() & digests[1].keys())
        if digests[0][name] != digests[1][name]
    ]
    if words and not force:
        told = "; ".join(words)
        raise UserError(f"the runs were judged under different conditions ({told}): compare with --force")
