"""`assay check PROBLEM CANDIDATE`: one verdict, for a person or as one JSON record.

A running judge daemon for the same device is asked; this process then never imports torch. Without one, the
judge runs here.
"""

from __future__ import annotations

import datetime
import math
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from assay.cli.render import show_verdict
from assay.daemon.client import Unavailable, find_daemon
from assay.records import UserError, Verdict, to_json


@click.command()
@click.argument("problem", type=click.Path())
@click.argument("candidate", type=click.Path())
@click.option("--device", help="cpu, cuda or cuda:N. Default: the GPU if there is one.")
@click.option("--json", "as_json", is_flag=True, help="Print the record alone, as one JSON object.")
@click.option("--keep", is_flag=True, help="Keep problem and candidate beside the record, to judge again.")
@click.option(
    "--records",
    type=click.Path(file_okay=False),
    default=".assay/records",
    show_default=True,
    help="Where records go.",
)
@click.option(
    "--require-sandbox",
    type=click.Choice(["available", "full"]),
    default="available",
    show_default=True,
    help="full: refuse to run where a layer of the sandbox is missing.",
)
@click.option("--allow-flawed", is_flag=True, help="Judge even if the problem cannot tell right from wrong.")
@click.option("--allow-tf32", is_flag=True, help="Accept TF32 in float32 matrix products and convolutions.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True, max=86400),
    default=60.0,
    show_default=True,
    help="Seconds one call of the candidate may take.",
)
@click.option("--no-daemon", is_flag=True, help="Judge in this process even if `assay serve-judge` runs.")
def check(
    problem: str,
    candidate: str,
    device: str | None,
    as_json: bool,
    keep: bool,
    records: str,
    require_sandbox: str,
    allow_flawed: bool,
    allow_tf32: bool,
    timeout: float,
    no_daemon: bool,
) -> None:
    """Judge CANDIDATE against PROBLEM.

    PROBLEM is a Python file with Model and get_inputs (KernelBench's format or Assay's own) or a KernelBot
    task folder. CANDIDATE is a .py, .cu or .cpp file. Exit 0: passed, 1: not passed, 2: no verdict.
    """
    policy = {
        "require_full_sandbox": require_sandbox == "full",
        "allow_flawed": allow_flawed,
        "allow_tf32": allow_tf32,
        "call_timeout_s": timeout,
    }
    if math.isnan(timeout):
        raise UserError("--timeout is a number of seconds")
    folder = record_folder(records)
    verdict = None if no_daemon else judge_by_daemon(problem, candidate, device, policy)
    if verdict is None:
        verdict = judge_here(problem, candidate, device, policy)
    path = write_record(verdict, folder)
    if keep:
        keep_sources(path, problem, candidate)
    if as_json:
        click.echo(to_json(verdict))
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


def judge_here(problem: str, candidate: str, device: str | None, policy: Mapping[str, Any]) -> Verdict:
    """The verdict of a judge in this process."""
    # Imported here: torch takes seconds, and neither --help nor a daemon's client should.
    from assay.candidates import read_candidate
    from assay.judge import Judge, Policy
    from assay.problems import load_problem

    source = read_candidate(candidate)
    specification = load_problem(problem)
    with Judge(device, Policy(**policy)) as judge:
        return judge.evaluate(specification, source)


def record_folder(path: str) -> Path:
    """Made before anything is judged: a verdict must not be lost for want of a place."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return Path(path)
    except OSError as error:
        raise UserError(f"cannot write records to {path}: {error.strerror}; choose --records") from error


def write_record(verdict: Verdict, folder: Path) -> Path:
    """Keep the record under a name that sorts by time."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S.%f")
    path = folder / f"{stamp}-{verdict.candidate.digest[:8]}.json"
    path.write_text(to_json(verdict, indent=1) + "\n")
    return path


def keep_sources(record: Path, problem: str, candidate: str) -> None:
    """Copies beside the record, in a folder of the same name."""
    folder = record.with_suffix("")
    folder.mkdir()
    shutil.copy(candidate, folder / f"candidate{Path(candidate).suffix}")
    if Path(problem).is_dir():
        shutil.copytree(problem, folder / "problem")
    else:
        shutil.copy(problem, folder / "problem.py")
