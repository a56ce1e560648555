"""What inductor generates for one problem, captured in a process of its own.

Inductor keeps global state, may crash and may hang: the process is ended with all it started when the time is
over. Problem code is trusted here, as everywhere in the judge. Nothing is compiled on a CPU: inductor is
stopped once its file is written.

Not covered: what the file means (reading.py), modules that torch.export refuses, modules that change their
buffers or inputs, nested inputs and outputs. Those are refused with a sentence that says why.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field

from assay.lift.offline import without_gpus
from assay.lift.record import CannotLift
from assay.problems import Case, Problem
from assay.records import from_plain, to_plain

INPUT, PARAMETER, BUFFER = "input", "parameter", "buffer"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of the generated call()."""

    name: str
    kind: str
    """INPUT, PARAMETER or BUFFER; a plain tensor attribute of the module counts as a buffer."""
    target: str
    """The argument of forward(), or the path of the attribute ("layer.weight")."""
    dtype: str
    """Without "torch."."""
    sizes: tuple[str, ...]
    """Python expressions over symbols; those of a dimension that was fixed are numbers."""
    strides: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Capture:
    """Inductor's file for one problem, with what is needed to stand in for the module."""

    device: str
    """"cpu" or "cuda"."""
    variant: str
    torch_version: str
    wrapper: str
    """The whole file."""
    inputs: tuple[str, ...]
    """The arguments of forward() that a call gives, in order."""
    arguments: tuple[Argument, ...]
    values: Mapping[str, str]
    """Inputs that are no tensors: they were taken as constants; literals by name."""
    settings: Mapping[str, str]
    """Attributes of the module and its parts that are plain values, by path; literals."""
    training: bool | None
    """The mode it was in; None where both modes compute the same."""
    ranges: Mapping[str, tuple[int, ...]]
    """Of each symbol: the least value, and the greatest where there is one."""
    relations: tuple[str, ...]
    """Python expressions over symbols that hold wherever the file does."""
    output: str
    """"tensor", "tuple" or "list"."""
    configs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The launch configuration of each kernel on a GPU, by inductor's name for it."""


def capture(
    problem: Problem,
    case: Case,
    device: str,
    variant: str,
    timeout_s: float,
    facts: Mapping[str, int | str] | None = None,
) -> Capture:
    """Run inductor on the problem at the sizes of the case.

    Args:
        facts: of a GPU, as `read_device` gives them; inductor is told of it and never touches it.

    Raises:
        CannotLift: inductor or torch.export refuses, crashes, or needs more than the time.
    """
    request = {
        "path": problem.path,
        "case": to_plain(case),
        "device": device,
        "variant": variant,
        "facts": facts,
    }
    reply = _ask(json.dumps(request), timeout_s)
    if "refused" in reply:
        raise CannotLift(reply["refused"])
    return from_plain(Capture, reply["capture"], "capture")


def _ask(request: str, timeout_s: float) -> dict[str, str]:
    with tempfile.TemporaryFile("w+", encoding="utf-8") as answers:
        process = subprocess.Popen(
            [sys.executable, "-m", "assay.lift.capture_process", str(answers.fileno())],
            pass_fds=(answers.fileno(),),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=without_gpus(),
            text=True,
            errors="replace",
        )
        try:
            _, said = process.communicate(request, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise CannotLift(f"inductor took longer than {timeout_s:g} s") from None
        finally:
            _end(process)
        answers.seek(0)
        answer = answers.read()
    if not answer:
        last = (said.strip().splitlines() or ["it said nothing"])[-1]
        raise CannotLift(f"inductor's process ended with {process.returncode}: {last}")
    return json.loads(answer)


def _end(process: subprocess.Popen[str]) -> None:
    """Everything in its group: inductor has compilers and workers of its own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
