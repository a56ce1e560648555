"""The judge in this process. Torch is imported here and no earlier: neither --help nor a daemon's client
should wait for it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from assay.daemon import places
from assay.records import Ladder, UserError, Verdict


def judge_here(problem: str, candidate: str, device: str | None, policy: Mapping[str, Any]) -> Verdict:
    """The verdict of a judge in this process."""
    rest_idle_threads(device)
    if policy.get("speed", True):
        say_patience()
    from assay.candidates import read_candidate
    from assay.judge import Judge, Policy
    from assay.problems import load_problem

    source = read_candidate(candidate)
    with told_apart():
        specification = load_problem(problem)
        with Judge(device, Policy(**policy)) as judge:
            return judge.evaluate(specification, source)


def bench_here(problem: str, device: str | None, policy: Mapping[str, Any]) -> Ladder:
    """The baselines of a problem, timed by a judge in this process."""
    rest_idle_threads(device)
    say_patience()
    from assay.judge import Judge, Policy
    from assay.problems import load_problem

    with told_apart():
        specification = load_problem(problem)
        with Judge(device, Policy(**policy)) as judge:
            return judge.bench(specification)


def rest_idle_threads(device: str | None) -> None:
    """On a CPU, idle OpenMP threads sleep instead of spinning: they would slow down whoever is timed next.

    OpenMP looks once, when torch is imported.
    """
    if "cpu" in places.likely_devices(device):
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def say_patience() -> None:
    """One line for a person. No moving one: a thread that wakes by the clock would disturb what is timed."""
    if sys.stderr.isatty():
        words = "measuring; the baselines of a new problem are compiled first, which can take minutes"
        click.secho(words, dim=True, err=True)


@contextlib.contextmanager
def told_apart() -> Iterator[None]:
    """Problem code runs in this process; its sys.exit() must not pass for the end of a command."""
    try:
        yield
    except SystemExit as left:
        raise UserError("the problem's code called sys.exit(): there is no verdict") from left
