"""What inductor generates for one problem, captured in a process of its own.

Inductor keeps global state, may crash and may hang: the process is ended with all it started when the time is
over. Problem code is trusted here, as everywhere in the judge. Nothing is compiled on a CPU: inductor is
stopped once its file is written.

Not covered: what the file means (reading.py), modules that torch.export refuses, modules that change their
buffers or, but for KernelBot tasks, inputs, nested inputs and outputs. Those are refused with a sentence that
says why.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.lift.offline import without_gpus
from assay.lift.record import CannotLift
from assay.problems import Case, Problem
from assay.records import from_plain, to_plain

INPUT, PARAMETER, BUFFER = "input", "parameter", "buffer"
_ERROR = re.compile(r"(  what\(\)|[A-Za-z_][\w.]*):\s+\S")
"""A line that names an error, of Python or of C++."""


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
    written: tuple[str, ...] = ()
    """Inputs that a task's function writes into: the file returns their new contents before its results."""


class Capturer:
    """Inductor on one problem at the sizes of one case, in a process that serves one variant after the other.

    Whoever asks while it is at work waits. To be closed.
    """

    def __init__(
        self, problem: Problem, case: Case, device: str, facts: Mapping[str, int | str] | None = None
    ) -> None:
        """`facts` are those of a GPU, as `read_device` gives them: inductor is told of it and never touches
        it."""
        subject = {"path": problem.path, "case": to_plain(case), "device": device, "facts": facts}
        self._subject = json.dumps(subject)
        self._process: _Process | None = None
        self._turn = threading.Lock()
        self._known: dict[str, dict[str, Any]] = {}

    def capture(self, variant: str, timeout_s: float) -> Capture:
        """What inductor generates with the options of a variant.

        Raises:
            CannotLift: inductor or torch.export refuses, crashes, or needs more than the time.
        """
        with self._turn:
            if variant not in self._known:
                self._known[variant] = self._ask(variant, timeout_s)
            reply = self._known[variant]
        if "refused" in reply:
            raise CannotLift(reply["refused"])
        return from_plain(Capture, reply["capture"], "capture")

    def close(self) -> None:
        with self._turn:
            self._end()

    def _ask(self, variant: str, timeout_s: float) -> dict[str, Any]:
        if self._process is None:
            self._process = _Process(self._subject)
        try:
            return self._process.ask(variant, timeout_s)
        except CannotLift:
            self._end()
            raise

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None


class _Process:
    """A process with its ears and mouth."""

    def __init__(self, subject: str) -> None:
        answers, told = os.pipe()
        self._answers = os.fdopen(answers, encoding="utf-8")
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._child = subprocess.Popen(
            [sys.executable, "-m", "assay.lift.capture_process", str(told)],
            pass_fds=(told,),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            start_new_session=True,
            env=without_gpus(),
            text=True,
        )
        os.close(told)
        self._tell(subject)

    def ask(self, variant: str, timeout_s: float) -> dict[str, Any]:
        self._tell(variant)
        waiting = select.poll()
        waiting.register(self._answers, select.POLLIN)
        if not waiting.poll(timeout_s * 1000):
            raise CannotLift(f"inductor took longer than {timeout_s:g} s")
        answer = self._answers.readline()
        if not answer.endswith("\n"):
            code = self._child.wait()  # it says why after it has hung up
            self._said.seek(0)
            raise CannotLift(f"inductor's process ended with {code}: {_last_words(self._said.read())}")
        return json.loads(answer)

    def end(self) -> None:
        """Everything in its group: inductor has compilers and workers of its own."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        with contextlib.suppress(BrokenPipeError):
            assert self._child.stdin is not None
            self._child.stdin.close()
        self._answers.close()
        self._said.close()

    def _tell(self, line: str) -> None:
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: its answer will say so
            self._child.stdin.write(line + "\n")
            self._child.stdin.flush()


def _last_words(said: str) -> str:
    """The last error in what a process has said, else its last line."""
    lines = said.strip().splitlines() or ["it said nothing"]
    return next((line for line in reversed(lines) if _ERROR.match(line)), lines[-1]).strip()
