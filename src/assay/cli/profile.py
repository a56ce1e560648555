"""`assay profile PROBLEM CANDIDATE`: which regime a kernel is in, the numbers that matter, what to try.

Runs in this process even if a judge daemon does: counters are read with the judge's own children. Torch is
imported when there is something to judge, and no earlier.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from assay.cli.judging import rest_idle_threads, say_patience, told_apart
from assay.cli.keeping import keep_record, record_folder
from assay.cli.options import baseline_options, place_options, policy_fields
from assay.cli.render_profile import show_failure, show_profile
from assay.cli.terminal import Terminal, echo
from assay.records import Passed, Profile, Verdict, to_json


@click.command()
@click.argument("problem", type=click.Path())
@click.argument("candidate", type=click.Path())
@place_options
@click.option("--no-counters", is_flag=True, help="Leave the device's counters (ncu) out.")
@baseline_options
def profile(
    problem: str,
    candidate: str,
    device: str | None,
    as_json: bool,
    records: str,
    no_counters: bool,
    **switches: Any,
) -> None:
    """Judge CANDIDATE, then say what its time goes into and what to try next.

    Shows the regime (memory, compute, latency or launch bound), the three numbers that matter there,
    registers, spills and occupancy of its kernels, and the device's counters where ncu may read them. Exit 0:
    a profile was shown, 1: the candidate did not pass, and why; 2: no verdict.
    """
    policy = policy_fields(**switches)
    folder = record_folder(records)
    verdict, found = _profile_here(problem, candidate, device, policy, counters=not no_counters)
    path = keep_record(verdict, folder, verdict.candidate.digest[:8])
    if as_json:
        echo(to_json({"verdict": verdict, "profile": found}))
    elif isinstance(verdict, Passed) and found is not None:
        show_profile(Terminal(), verdict, found, path)
    else:
        show_failure(Terminal(), verdict, path)
    raise click.exceptions.Exit(0 if found is not None else 1)


def _profile_here(
    problem: str, candidate: str, device: str | None, policy: Mapping[str, Any], *, counters: bool
) -> tuple[Verdict, Profile | None]:
    rest_idle_threads(device)
    say_patience()
    from assay.candidates import read_candidate
    from assay.judge import Judge, Policy
    from assay.problems import load_problem
    from assay.profile import profile_candidate

    source = read_candidate(candidate)
    with told_apart():
        specification = load_problem(problem)
        with Judge(device, Policy(**policy)) as judge:
            return profile_candidate(judge, specification, source, counters=counters)
