"""One question to KernelBench's evaluator, asked in a fresh process; used by against_kernelbench.py.

The candidate shares a process with the evaluator, so nothing that is printed there is believed. The answer
goes to a file without a name, opened here and held there before the candidate is loaded, and it carries a
number drawn for this one question; whatever else is found in that file is not an answer. Each process has an
empty working folder, home and folder for temporary files, and ends together with all that it started.

Not covered: a candidate written against this very file, which could find the number in its own process, and
files that a candidate leaves outside the folders it was given.
"""

from __future__ import annotations

import importlib
import inspect
import json
import math
import numbers
import os
import secrets
import signal
import site
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any

CORRECT, INCORRECT, NOT_COMPILED = "correct", "incorrect", "does not compile"
ASKS_TO_RETRY = "asks to retry"
CRASHED = "evaluator crashed"
"""It had called the candidate correct, then raised where it computes times."""
RAISED = "raised"
"""An exception that the evaluator let through, before it had called anything correct."""
NO_RESULT, TIMED_OUT, NOT_RUN = "no result", "timed out", "not run"

CORRECT_TRIALS, TIMED_TRIALS = 5, 100
CACHES = ("TRITON_CACHE_DIR", "TRITON_HOME", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR")
"""Folders that one candidate could leave something in for the next."""
POLL_S = 0.05
MOST_TOLD_BYTES, MOST_NOTE_CHARS = 1 << 20, 200


@dataclass(frozen=True, slots=True)
class Question:
    """A reference and a candidate, as texts."""

    reference: str
    candidate: str

    @property
    def backend(self) -> str:
        """Only for "triton" does KernelBench import the candidate from a file; other texts are executed."""
        return "triton" if "import triton" in self.candidate else "cuda"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the evaluator said, or how the process ended instead."""

    word: str
    flagged: bool = False
    """It warned of an excessive speed-up."""
    time_ms: float | None = None
    reference_ms: float | None = None
    note: str = ""
    seconds: float = 0.0
    digest: str = ""
    """Of all texts that the answer depends on."""

    @property
    def speed_up(self) -> float | None:
        if self.time_ms is None or self.reference_ms is None or not 0 < self.time_ms < math.inf:
            return None
        return self.reference_ms / self.time_ms if 0 < self.reference_ms < math.inf else None


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop waiting; `stop` ends every question at once."""

    limit_s: float
    budget_ends: float
    """On the monotonic clock."""
    stop: threading.Event


def ask(package: Path, question: Question, limits: Limits) -> Answer:
    """The evaluator's answer; asked again, once, if it says that it could not tell."""
    answer = _ask_once(package, question, limits)
    if answer.word != ASKS_TO_RETRY:
        return answer
    second = _ask_once(package, question, limits)
    return replace(second, note=second.note or "after it had asked to retry")


def _ask_once(package: Path, question: Question, limits: Limits) -> Answer:
    start = time.monotonic()
    if limits.stop.is_set() or start >= limits.budget_ends:
        return Answer(NOT_RUN)
    nonce = secrets.token_hex(16)
    with (
        tempfile.TemporaryDirectory(prefix="asked-", ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryFile() as job,
        tempfile.TemporaryFile() as told,
        tempfile.TemporaryFile() as noise,
    ):
        words = {"reference": question.reference, "candidate": question.candidate}
        words |= {"backend": question.backend, "package": str(package.resolve()), "nonce": nonce}
        job.write(json.dumps({**words, "told_fd": told.fileno()}).encode())
        job.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=job,
            stdout=noise,
            stderr=noise,
            cwd=_folder(folder, "work"),
            env=_environment(folder),
            pass_fds=(told.fileno(),),
            start_new_session=True,
        )
        try:
            ended = _wait(process, min(start + limits.limit_s, limits.budget_ends), limits.stop)
        finally:
            # Before the process is reaped, so that its number cannot be another's by now.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        seconds = round(time.monotonic() - start, 2)
        plain = _read_told(told, nonce)
        if plain is not None:
            return replace(_read_answer(plain), seconds=seconds)
        if ended:
            return Answer(NO_RESULT, note=_last_line(noise, process.returncode), seconds=seconds)
        in_budget = time.monotonic() < limits.budget_ends and not limits.stop.is_set()
        return Answer(TIMED_OUT, seconds=seconds) if in_budget else Answer(NOT_RUN)


def _folder(above: str, name: str) -> str:
    path = Path(above) / name
    path.mkdir()
    return str(path)


def _environment(folder: str) -> dict[str, str]:
    search = [
        str(Path(place).resolve()) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place
    ]
    beside_python = str(Path(sys.executable).parent)  # ninja, in a virtual environment
    return {
        **{name: value for name, value in os.environ.items() if name not in CACHES},
        "HOME": _folder(folder, "home"),
        "XDG_CACHE_HOME": _folder(folder, "cache"),
        "TMPDIR": _folder(folder, "tmp"),
        "PATH": os.pathsep.join((beside_python, os.environ.get("PATH", os.defpath))),
        "PYTHONPATH": os.pathsep.join(search),
        "PYTHONUSERBASE": site.getuserbase(),  # packages installed there are found by way of HOME otherwise
    }


def _wait(process: subprocess.Popen[bytes], until: float, stop: threading.Event) -> bool:
    """Whether it ended in time; it is not reaped, its group can still be signalled."""
    how = os.WEXITED | os.WNOWAIT | os.WNOHANG
    while os.waitid(os.P_PID, process.pid, how) is None:
        if time.monotonic() >= until or stop.wait(POLL_S):
            return False
    return True


def _read_told(told: IO[bytes], nonce: str) -> dict[str, Any] | None:
    """The one line that carries the number; two of them are as good as none."""
    told.seek(0)
    found = []
    for line in told.read(MOST_TOLD_BYTES).splitlines():
        try:
            plain = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(plain, dict) and plain.get("nonce") == nonce:
            found.append(plain)
    return found[0] if len(found) == 1 else None


def _read_answer(plain: dict[str, Any]) -> Answer:
    if plain["kind"] == "none":
        return Answer(ASKS_TO_RETRY)
    if plain["kind"] == "raised":
        return Answer(CRASHED if plain["was_correct"] else RAISED, note=" ".join(plain["error"].split()))
    if not plain["correct"]:
        return Answer(INCORRECT if plain["compiled"] else NOT_COMPILED)
    return Answer(CORRECT, plain["flagged"], plain["time_ms"], plain["reference_ms"])


def _last_line(noise: IO[bytes], code: int) -> str:
    noise.seek(max(0, noise.seek(0, os.SEEK_END) - 4 * MOST_NOTE_CHARS))
    lines = noise.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "no output")
    return f"exit code {code}: {last}"[:MOST_NOTE_CHARS]


# From here on: inside the process that the candidate shares. No part of assay is imported there.


def _teller(told_fd: int, nonce: str) -> Callable[[dict[str, object]], None]:
    """Writes one answer and leaves: at the interpreter's end threads of the candidate could still hang."""
    write, dumps, leave = os.write, json.dumps, os._exit

    def tell(words: dict[str, object]) -> None:
        write(told_fd, b"\n" + dumps({**words, "nonce": nonce}).encode() + b"\n")
        leave(0)

    return tell


def _words_of(result: Any) -> dict[str, object]:
    """The fields of KernelBench's result that are read; of its metadata only one truth value."""
    if result is None:
        return {"kind": "none"}
    metadata = getattr(result, "metadata", None)
    return {
        "kind": "result",
        "compiled": getattr(result, "compiled", None) is True,
        "correct": getattr(result, "correctness", None) is True,
        "flagged": isinstance(metadata, dict) and metadata.get("excessive_speedup") is True,
        "time_ms": _number(getattr(result, "runtime", None)),
        "reference_ms": _number(getattr(result, "ref_runtime", None)),
    }


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, numbers.Real) and math.isfinite(value) else None


def _was_correct(trace: TracebackType | None) -> bool:
    """Whether a frame that was left holds a result by which the candidate is correct."""
    while trace is not None:
        held = trace.tb_frame.f_locals.get("kernel_exec_result")
        if getattr(held, "correctness", None) is True:
            return True
        trace = trace.tb_next
    return False


def _answer_inside() -> None:
    job = json.loads(sys.stdin.buffer.read())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the number stands in what was read
    tell = _teller(job.pop("told_fd"), job.pop("nonce"))

    def tell_raised(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        words = f"{kind.__name__}: {error}"[:MOST_NOTE_CHARS]
        tell({"kind": "raised", "error": words, "was_correct": _was_correct(trace)})

    sys.excepthook = tell_raised
    sys.path.insert(0, job["package"])
    evaluate = importlib.import_module("kernelbench.eval").eval_kernel_against_ref
    wanted = {
        "num_correct_trials": CORRECT_TRIALS,
        "num_perf_trials": TIMED_TRIALS,
        "measure_performance": True,
        "backend": job["backend"],
    }
    known = inspect.signature(evaluate).parameters  # older versions have fewer
    given = {name: value for name, value in wanted.items() if name in known}
    tell(_words_of(evaluate(job["reference"], job["candidate"], **given)))


if __name__ == "__main__":
    _answer_inside()
