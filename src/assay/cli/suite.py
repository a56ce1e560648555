"""`assay suite SUITE`: which problems a suite has, and what each of them tells apart."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from assay.cli.options import MIB
from assay.cli.terminal import echo
from assay.records import to_json

if TYPE_CHECKING:
    from assay.archive import Listed
    from assay.evaluation.discrimination import Discrimination


CPU_MIB = 0.25
_SHORT = {"other_input": "stale", "dropped_tail": "tail", "downgraded": "precision", "linearised": "linear"}


@click.command()
@click.argument("suite", type=click.Path())
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda or cuda:N.")
@click.option("--jobs", type=click.IntRange(min=1), help="Problems at once. Default: one per core on a CPU.")
@click.option(
    "--small",
    type=click.FloatRange(min=0),
    metavar="MIB",
    help=f"Scale problems down to inputs of so many MiB; 0 for full sizes. Default: {CPU_MIB} on a CPU.",
)
@click.option("--declared", is_flag=True, help="Leave out the hidden cases that the judge derives.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows alone, as one JSON object.")
def suite(
    suite: str, device: str, jobs: int | None, small: float | None, declared: bool, as_json: bool
) -> None:
    """Put every problem of SUITE before the judge's mutants.

    They are zeros, a constant, the answer times 1.01, a stale answer, a stale tail, a lower precision, and
    straight lines in the place of activations.

    Exit 0: every problem tells right from wrong, 1: some do not or cannot be read.
    """
    # Imported here: torch takes seconds, and --help should not.
    from assay.evaluation import read_suite
    from assay.evaluation.discrimination import discriminate_all
    from assay.judge import Policy

    found = read_suite(Path(suite))
    on_cpu = device == "cpu"
    size_mib = (CPU_MIB if on_cpu else 0.0) if small is None else small
    policy = Policy(most_input_bytes=int(size_mib * MIB), derive_hidden=not declared)
    console = Console(stderr=True)
    with console.status("starting") as status:
        rows = discriminate_all(
            found,
            policy,
            device,
            jobs or ((os.cpu_count() or 1) if on_cpu else 1),
            lambda row: status.update(row.problem),
        )
    if as_json:
        echo(to_json({"rows": rows, "troubled": {one.name: one.trouble for one in found.troubled}}))
    else:
        _show(Console(width=140), rows, found.troubled)
    weak = [row for row in rows if not row.sound]
    raise click.exceptions.Exit(1 if weak or found.troubled else 0)


def _show(console: Console, rows: Sequence[Discrimination], troubled: Sequence[Listed]) -> None:
    from assay.correctness import MUTANTS
    from assay.evaluation.discrimination import tally

    table = Table(box=None, title="share of the cases that notice each wrong answer, in percent")
    for name in ("problem", "category", "regime", "outputs"):
        table.add_column(name)
    for name in ("MiB", "cases", *(_SHORT.get(name, name) for name in MUTANTS), "s"):
        table.add_column(name, justify="right")
    for row in rows:
        shares = ["" if name not in row.noticed else f"{100 * row.noticed[name]:.0f}" for name in MUTANTS]
        kinds = (row.about.category, row.about.regime, " ".join(row.dtypes))
        cases = f"{row.declared}+{row.derived}"
        size = f"{row.nominal_bytes / MIB:.1f}"
        table.add_row(row.problem, *kinds, size, cases, *shares, f"{row.seconds:.1f}")
    console.print(table)
    for kind, counts in tally(rows).items():
        words = ", ".join(f"{name} {count}" for name, count in counts.items())
        console.print(f"{kind}: {words}", highlight=False, soft_wrap=True)
    for row in rows:
        for flaw in row.flaws:
            console.print(f"[red]flawed[/] {row.problem}: {flaw}", highlight=False, soft_wrap=True)
    for one in troubled:
        console.print(f"[red]cannot be read[/] {one.trouble}", highlight=False, soft_wrap=True)
    sound = sum(row.sound for row in rows)
    console.print(f"{len(rows) + len(troubled)} problems, {sound} tell right from wrong", highlight=False)
