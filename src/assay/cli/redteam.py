"""`assay redteam FOLDER`: attacks and honest kernels against the judge, as a matrix."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.cli.judging import rest_idle_threads
from assay.cli.keeping import keep_record, record_folder
from assay.cli.options import place_options
from assay.cli.terminal import Terminal, echo
from assay.records import RedteamMatrix, RedteamRow, to_json

MOST_JOBS = 4
SECTIONS = {
    "A": "forged clock or result channel",
    "B": "hidden work",
    "C": "replay",
    "D": "checker and output games",
    "E": "reference, harness, phase",
    "F": "precision and approximation",
    "G": "over-specialisation",
    "H": "not the candidate's kernel",
    "I": "distributed",
}


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path())
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Judges at once for what is not timed. Default: one per processor, 4 at most; 1 on a GPU.",
)
@place_options
def redteam(
    folders: tuple[str, ...], jobs: int | None, device: str | None, as_json: bool, records: str
) -> None:
    """Run attacks and honest kernels with expected outcomes against the judge.

    Every .py, .cpp or .cu file below FOLDERS whose header says what it must get (see docs/redteam.md) is
    judged. Exit 0: all as expected, 1: some not, 2: nothing was run.
    """
    folder = record_folder(records)
    matrix = run_corpus(folders, device, jobs, quiet=as_json)
    path = keep_record(matrix, folder, "redteam")
    if as_json:
        echo(to_json(matrix))
    else:
        show_matrix(Terminal(), matrix, path)
    raise click.exceptions.Exit(0 if all(row.ok for row in matrix.rows) else 1)


def run_corpus(
    folders: tuple[str, ...], device: str | None, jobs: int | None, *, quiet: bool
) -> RedteamMatrix:
    rest_idle_threads(device)
    from assay.judge import read_environment
    from assay.judge.devices import resolve_device
    from assay.redteam.corpus import read_folder
    from assay.redteam.shares import walk_shared

    entries = [entry for folder in folders for entry in read_folder(Path(folder))]
    chosen = resolve_device(device)
    console = Console(stderr=True, quiet=quiet)
    start = time.monotonic()
    if jobs is None:
        jobs = min(MOST_JOBS, os.cpu_count() or 1) if chosen.type == "cpu" else 1

    def tell(row: RedteamRow) -> None:
        console.print(_line(row), soft_wrap=True, highlight=False)

    rows = walk_shared(entries, str(chosen), jobs, tell)
    return RedteamMatrix(tuple(rows), read_environment(chosen), round(time.monotonic() - start, 1))


def _line(row: RedteamRow) -> str:
    mark = "[green]✓[/]" if row.ok else "[red]✗[/]"
    what = f"{row.status} {row.outcome}".strip()
    codes = ", ".join(row.findings)
    reason = f"  [red]{escape(row.why)}[/]" if row.why and not row.ok else f"  [dim]{escape(codes)}[/]"
    return f"{mark} {row.catalogue:4}{escape(row.name):40} {what:24}{row.seconds:6.1f} s{reason}"


def show_matrix(console: Console, matrix: RedteamMatrix, path: Path) -> None:
    """Attacks by section, honest kernels below, then whatever was not as expected."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("attacks", "tried", "caught", "wrong", "rejected", "crashed", "gained nothing", "passed"):
        table.add_column(heading, justify="left" if heading == "attacks" else "right")
    sections: dict[str, list[RedteamRow]] = defaultdict(list)
    attacks = matrix.ran(honest=False)
    for row in attacks:
        sections[row.catalogue[:1]].append(row)
    for letter, rows in sorted(sections.items()):
        table.add_row(f"{letter} {SECTIONS.get(letter, '')}", *_counts(rows))
    table.add_row("[bold]all[/]", *_counts(attacks))
    console.print(table)
    honest = matrix.ran(honest=True)
    console.print(f"{sum(row.ok for row in honest)} of {len(honest)} honest kernels unharmed")
    skipped = sum(row.status == "not run" for row in matrix.rows)
    device = escape(matrix.environment.device_name)
    console.print(f"{skipped} not for this device ({device}); {matrix.seconds:.0f} s")
    for row in matrix.rows:
        if not row.ok:
            known = f" [yellow](known: {escape(row.open)})[/]" if row.open else ""
            console.print(f"[red]✗[/] {escape(row.name)}: {escape(row.why)}{known}", soft_wrap=True)
    console.print(f"record: {path}", soft_wrap=True, highlight=False)


def _counts(rows: list[RedteamRow]) -> list[str]:
    by_status = {
        status: sum(row.status == status for row in rows) for status in ("wrong", "rejected", "crashed")
    }
    no_gain = sum(row.status == "passed" and row.ok for row in rows)
    fooled = sum(row.fooled for row in rows)
    other = len(rows) - sum(by_status.values()) - no_gain - fooled
    by_status["crashed"] += other  # did not build, ran out of time
    numbers = [len(rows), len(rows) - fooled, *by_status.values(), no_gain, fooled]
    return [str(number) for number in numbers]
