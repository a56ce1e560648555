"""`assay bench PROBLEM`: the baselines a candidate would be measured against, without a candidate.

Runs in this process even if a judge daemon does: it is asked for rarely, and a daemon judges candidates.
"""

from __future__ import annotations

from typing import Any

import click

from assay.cli.judging import bench_here
from assay.cli.keeping import keep_record, record_folder
from assay.cli.options import baseline_options, place_options, policy_fields
from assay.cli.render_speed import show_ladder
from assay.cli.terminal import Terminal, echo
from assay.records import to_json


@click.command()
@click.argument("problem", type=click.Path())
@place_options
@baseline_options
def bench(problem: str, device: str | None, as_json: bool, records: str, **switches: Any) -> None:
    """Time every baseline of PROBLEM: eager, torch.compile in three modes, AOTInductor.

    What was measured once is kept for the same problem, device and versions. Exit 0: at least one baseline
    ran, 1: none did, 2: nothing was measured.
    """
    policy = policy_fields(**switches)
    folder = record_folder(records)
    ladder = bench_here(problem, device, policy)
    path = keep_record(ladder, folder, f"bench-{ladder.digest[:8]}")
    if as_json:
        echo(to_json(ladder))
    else:
        show_ladder(Terminal(), ladder, path)
    raise click.exceptions.Exit(0 if any(rung.times is not None for rung in ladder.rungs) else 1)
