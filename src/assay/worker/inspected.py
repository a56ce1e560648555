"""The program that compute-sanitizer or ncu watches: loads one candidate and calls it on a few inputs.

A process of its own, because the tool has to be there when CUDA starts. It is given no expected values and
compares nothing: what counts is what the tool says about the kernels. Exit 0: all calls were made. Exit 3:
something raised, and the last line of the output says what.

Not covered: who starts it and under what limits (inspection.py).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from assay.candidates import Candidate
from assay.correctness.reference import pin_precision
from assay.problems.values import dtype_named, unflatten
from assay.records.codec import from_plain
from assay.worker.entry_types import Construction, Entry
from assay.worker.loading import load_candidate
from assay.worker.placement import Placement

FAILED = 3
CALLS = 2
_LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True)
class InspectedCase:
    """One case with its contents, on the CPU. Trees hold numbers in place of tensors (problems/values.py)."""

    construction: Mapping[str, Any]
    """args and kwargs as trees, seed, dtype, mode, allow_tf32."""
    init: Sequence[torch.Tensor]
    state: Mapping[str, torch.Tensor]
    inputs: Any
    places: Sequence[Mapping[str, Any]]
    stored: Sequence[torch.Tensor]
    """The bytes of each input with the gaps of its layout and not one more: what reads on reads too far."""


def pack_task(
    device: str,
    load: Mapping[str, Any],
    built: bytes,
    cases: Sequence[InspectedCase],
    *,
    marked: bool = False,
) -> bytes:
    """What `main` reads: the length of the first part, plain values and tensors, then what was built.

    Args:
        marked: the last call of each case is marked, for a profiler that looks at nothing else.
    """
    names = ("construction", "inputs", "places")
    plain = [{name: getattr(case, name) for name in names} for case in cases]
    contents = {
        "plain": json.dumps(
            {"device": device, "load": load, "cases": plain, "marked": marked}, allow_nan=False
        ),
        "tensors": [
            {"init": list(case.init), "state": dict(case.state), "stored": list(case.stored)}
            for case in cases
        ],
    }
    buffer = io.BytesIO()
    torch.save(contents, buffer)
    return len(buffer.getvalue()).to_bytes(_LENGTH_BYTES, "big") + buffer.getvalue() + built


def main(path: str) -> None:
    """Do what the task at `path` says, beside it."""
    with _Told():
        _run(Path(path))


class _Told:
    """Whatever is raised becomes one last line and the exit code: this process has nobody else to tell."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            return
        traceback.print_exception(error, file=sys.stdout)
        first = (str(error).splitlines() or [""])[0]
        print(f"{type(error).__name__}: {first}", flush=True)
        raise SystemExit(FAILED)


def _run(path: Path) -> None:
    data = path.read_bytes()
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
    contents = torch.load(io.BytesIO(data[_LENGTH_BYTES:end]), map_location="cpu", weights_only=True)
    task = json.loads(contents["plain"])
    device = torch.device(task["device"])
    if device.type == "cuda":
        # First of all: the tool gives up on a program that does not start CUDA.
        torch.cuda.set_device(device)
        torch.ones(1, device=device)
    candidate = from_plain(Candidate, task["load"]["candidate"], "candidate")
    entry, _ = load_candidate(candidate, task["load"], data[end:], path.parent / "work")
    for case, tensors in zip(task["cases"], contents["tensors"], strict=True):
        _call(entry, case, tensors, device, marked=task["marked"])
    if device.type == "cuda":
        torch.cuda.synchronize()
    if not task["marked"]:  # a profiler writes its results when the program ends
        _leave()


def _leave() -> None:
    """Taken apart under a tool, a process that has computed gradients may abort or stand still."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _call(
    entry: Entry, case: dict[str, Any], tensors: dict[str, Any], device: torch.device, *, marked: bool
) -> None:
    how = case["construction"]
    init = [tensor.to(device) for tensor in tensors["init"]]
    args, kwargs = unflatten(how["args"], init), unflatten(how["kwargs"], init)
    dtype = dtype_named(how["dtype"]) if how["dtype"] else None
    pin_precision(allow_tf32=how["allow_tf32"])
    entry.construct(Construction(args, kwargs, how["seed"], device, dtype, how["mode"]))
    if tensors["state"]:
        entry.load_state({name: tensor.to(device) for name, tensor in tensors["state"].items()})
    stored = [data.to(device) for data in tensors["stored"]]
    views = [Placement.from_plain(p).view(data) for p, data in zip(case["places"], stored, strict=True)]
    inputs = unflatten(case["inputs"], views)
    with torch.no_grad():
        for call in range(CALLS):
            mark = marked and device.type == "cuda" and call == CALLS - 1
            # The first call compiles, and may try many kernels out.
            with torch.cuda.profiler.profile() if mark else contextlib.nullcontext():
                entry(inputs)
                if device.type == "cuda":
                    torch.cuda.synchronize()
