"""`assay check PROBLEM CANDIDATE`: one verdict, for a person or as one JSON record.

A running judge daemon for the same device is asked; this process then never imports torch. Without one, the
judge runs here.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from assay.cli.judging import judge_here
from assay.cli.keeping import keep_record, record_folder
from assay.cli.options import baseline_options, judging_options, place_options, policy_fields
from assay.cli.render import show_verdict
from assay.cli.terminal import echo
from assay.daemon.client import Unavailable, find_daemon
from assay.records import Verdict, to_json


@click.command()
@click.argument("problem", type=click.Path())
@click.argument("candidate", type=click.Path())
@place_options
@click.option("--keep", is_flag=True, help="Keep problem and candidate beside the record, to judge again.")
@judging_options
@baseline_options
@click.option("--no-daemon", is_flag=True, help="Judge in this process even if `assay serve-judge` runs.")
def check(
    problem: str,
    candidate: str,
    device: str | None,
    as_json: bool,
    keep: bool,
    records: str,
    no_daemon: bool,
    **switches: Any,
) -> None:
    """Judge CANDIDATE against PROBLEM: is it right, and is it faster than the best baseline?

    PROBLEM is a Python file with Model and get_inputs (KernelBench's format or Assay's own) or a KernelBot
    task folder. CANDIDATE is a .py, .cu or .cpp file. Exit 0: passed, 1: not passed, 2: no verdict. Being
    slow is no reason not to pass.
    """
    policy = policy_fields(**switches)
    folder = record_folder(records)
    verdict = None if no_daemon else judge_by_daemon(problem, candidate, device, policy)
    if verdict is None:
        verdict = judge_here(problem, candidate, device, policy)
    path = keep_record(verdict, folder, verdict.candidate.digest[:8])
    if keep:
        keep_sources(path, problem, candidate)
    if as_json:
        echo(to_json(verdict))
    else:
        show_verdict(verdict, path)
    raise click.exceptions.Exit(0 if verdict.status == "passed" else 1)


def judge_by_daemon(
    problem: str, candidate: str, device: str | None, policy: Mapping[str, Any]
) -> Verdict | None:
    """A running daemon's verdict; None where there is none to ask, said in one line if that is odd."""
    console = Console(stderr=True)
    daemon = find_daemon(device)
    if isinstance(daemon, Unavailable):
        console.print(f"[dim]{escape(daemon.reason)}; judging in this process[/]", soft_wrap=True)
        return None
    if daemon is None:
        return None
    # A status line shows on terminals alone: scripts read stderr.
    with daemon, console.status("asking the judge daemon") as line:
        return daemon.check(problem, candidate, policy, lambda words: line.update(escape(words)))


def keep_sources(record: Path, problem: str, candidate: str) -> None:
    """Copies beside the record, in a folder of the same name."""
    folder = record.with_suffix("")
    folder.mkdir()
    shutil.copy(candidate, folder / f"candidate{Path(candidate).suffix}")
    if Path(problem).is_dir():
        shutil.copytree(problem, folder / "problem")
    else:
        shutil.copy(problem, folder / "problem.py")
