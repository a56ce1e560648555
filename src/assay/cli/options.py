"""Options that several commands share, and the policy they make.

Only what was asked for is set: a daemon keeps one judge per policy, and fills in the rest by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

from assay.records import UserError

RUNG_NAMES = ("eager", "compile", "max-autotune-no-cudagraphs", "max-autotune", "aot-inductor")
"""`assay.speed.opponents.NAMES` once more: reading them there would import torch, which a daemon's client
never does. A test holds the two together.
"""
SEARCH_RUNGS = RUNG_NAMES[:-1]
"""On a GPU, unless others are asked for: aot-inductor has the kernels of compile, and a minute of C++."""
MOST_SECONDS = 86400
MIB, MOST_MIB = 1 << 20, 1 << 20
Command = TypeVar("Command", bound=Callable[..., Any])


def read_rungs(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[str, ...]:
    """The named rungs, each once and from simple to involved; empty if none is named."""
    if text is None:
        return ()
    named = [name.strip() for name in text.split(",")]
    if unknown := [name for name in named if name not in RUNG_NAMES]:
        raise UserError(f"--rungs: there is no baseline {unknown[0]!r}; there are {', '.join(RUNG_NAMES)}")
    return tuple(name for name in RUNG_NAMES if name in named)


def read_number(_context: click.Context, option: click.Parameter, number: float | None) -> float | None:
    """A number; FloatRange lets NaN through."""
    if number is not None and math.isnan(number):
        raise UserError(f"{option.opts[0]} is a number")
    return number


def seconds_type() -> click.FloatRange:
    return click.FloatRange(min=0, min_open=True, max=MOST_SECONDS)


def place_options(command: Command) -> Command:
    """Where to measure and where the record goes."""
    for option in (
        click.option(
            "--records",
            type=click.Path(file_okay=False),
            default=".assay/records",
            show_default=True,
            help="Where records go.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print the record alone, as one JSON object."),
        click.option("--device", help="cpu, cuda or cuda:N. Default: the GPU if there is one."),
    ):
        command = option(command)
    return command


def baseline_options(command: Command) -> Command:
    """What the baselines are and what they run under."""
    for option in (
        click.option("--force-busy", is_flag=True, help="Time even while others use the device."),
        click.option(
            "--rungs",
            callback=read_rungs,
            metavar="A,B",
            help=f"Baselines to time: {', '.join(RUNG_NAMES)}. Default: all, in a search "
            "but the last; on a CPU the first two.",
        ),
        click.option("--allow-tf32", is_flag=True, help="Accept TF32 in float32 products and convolutions."),
        click.option(
            "--allow-flawed", is_flag=True, help="Go on even if the problem cannot tell right from wrong."
        ),
    ):
        command = option(command)
    return command


def judging_options(command: Command) -> Command:
    """Limits of one judgement, and whether speed is part of it."""
    for option in (
        click.option(
            "--budget",
            type=seconds_type(),
            callback=read_number,
            metavar="SECONDS",
            help="How long timing may go on beyond the least number of processes.",
        ),
        click.option(
            "--forbid-libraries", is_flag=True, help="The candidate's own code has to do all the work."
        ),
        click.option(
            "--deep", is_flag=True, help="Have compute-sanitizer look at a few small cases too. GPU only."
        ),
        click.option("--no-speed", is_flag=True, help="Right or wrong alone: nothing is timed."),
        click.option(
            "--timeout",
            type=seconds_type(),
            callback=read_number,
            default=60.0,
            show_default=True,
            help="Seconds one call of the candidate may take.",
        ),
        click.option(
            "--require-sandbox",
            type=click.Choice(["available", "full"]),
            default="available",
            show_default=True,
            help="full: refuse to run where a layer of the sandbox is missing.",
        ),
    ):
        command = option(command)
    return command


def crew_options(command: Command) -> Command:
    """Where several judges are, and at what size."""
    for option in (
        click.option(
            "--ray", metavar="ADDRESS", help="Judge on a Ray cluster; auto for the one of this machine."
        ),
        click.option(
            "--small",
            type=click.FloatRange(min=0, min_open=True, max=MOST_MIB),
            callback=read_number,
            metavar="MIB",
            help="Scale problems down to inputs of so many MiB.",
        ),
        click.option("--device", help="cpu, cuda (all GPUs) or cuda:N. Default: all GPUs if there are any."),
    ):
        command = option(command)
    return command


def policy_fields(
    *,
    allow_flawed: bool,
    allow_tf32: bool,
    rungs: tuple[str, ...],
    force_busy: bool,
    require_sandbox: str = "available",
    timeout: float | None = None,
    forbid_libraries: bool = False,
    deep: bool = False,
    no_speed: bool = False,
    budget: float | None = None,
    small: float | None = None,
) -> dict[str, Any]:
    """Fields of a Policy, those alone that differ from its defaults or were named."""
    wanted = {
        "allow_flawed": allow_flawed,
        "allow_tf32": allow_tf32,
        "force_busy": force_busy,
        "deep": deep,
        "forbid_libraries": forbid_libraries,
        "require_full_sandbox": require_sandbox == "full",
    }
    fields: dict[str, Any] = {name: True for name, is_set in wanted.items() if is_set}
    if no_speed:
        fields["speed"] = False
    if rungs:
        fields["rungs"] = rungs
    if small is not None:
        fields["most_input_bytes"] = int(small * MIB)
    for name, seconds in (("call_timeout_s", timeout), ("speed_budget_s", budget)):
        if seconds is not None:
            fields[name] = seconds
    return fields
