"""What a candidate's compiled code takes, told by its own process once it has run.

The driver says how kernels were launched (device_activity.py), Triton keeps what it compiled, objdump reads a
library. The candidate could make all of it up: it is evidence for people and for whoever writes the next
attempt, and no verdict depends on it.

Not covered: Triton kernels that no module of the candidate holds by name (the driver still tells of them),
and the code of torch extensions.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from assay.records.codec import to_plain
from assay.records.errors import CandidateFailure
from assay.worker.device_activity import KernelLaunch
from assay.worker.messages import MOST_US, decode, decode_list
from assay.worker.object_code import Loops, code_digest, find_loops

MOST_KERNELS = 64
LONGEST_NAME = 120
SHORT_US = 50e3
"""A call that takes longer is not made once more to see how many threads it keeps busy."""
_MEASURED_S = 0.01
_WORD_BYTES = 4
_WARP = 32
_MOST_WRAPPERS = 4


@dataclass(frozen=True, slots=True)
class TritonKernel:
    """One kernel as Triton compiled it."""

    name: str
    digest: str
    threads: int
    shared_bytes: int
    registers: int | None = None
    """Known once it was loaded."""
    spill_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """A child's answer."""

    launches: tuple[KernelLaunch, ...] = ()
    triton: tuple[TritonKernel, ...] = ()
    loops: Loops | None = None
    busy_threads: float | None = None
    threads_there: int | None = None


@dataclass(slots=True)
class Spent:
    """What one call at the scored size took."""

    busy_threads: float | None = None
    launches: list[KernelLaunch] = field(default_factory=list)

    def measure(self, call: Callable[[], object]) -> None:
        """Make as many calls as it takes to tell how many threads share their work."""
        before, start_s = _threads_ns(), time.perf_counter()
        while time.perf_counter() - start_s < _MEASURED_S:
            call()
        spent = [ns - before.get(thread, 0) for thread, ns in _threads_ns().items()]
        # Not over wall time: on a busy machine a thread that could run does not always.
        self.busy_threads = sum(spent) / max(spent) if spent and max(spent) > 0 else None


def _threads_ns() -> dict[str, int]:
    """How long each thread of this process has run; empty where the system does not say."""
    try:
        return {
            thread.name: int((thread / "schedstat").read_text().split()[0])
            for thread in Path("/proc/self/task").iterdir()
        }
    except OSError:  # one that has just ended, or no such files
        return {}


def tell(spent: Spent, folder: Path, library: str) -> dict[str, Any]:
    """The answer, as plain data.

    Args:
        folder: where the candidate was loaded.
        library: the file in it whose loops are looked at; empty for none.
    """
    found = find_loops(folder / library) if library else None
    return {
        "launches": [to_plain(launch) for launch in _longest(spent.launches)],
        "triton": [to_plain(kernel) for kernel in _triton_kernels(folder)],
        "loops": to_plain(found) if found is not None else None,
        "busy_threads": spent.busy_threads,
        "threads_there": torch.get_num_threads(),
    }


def decode_told(plain: dict[str, Any]) -> Told:
    """The judge's reading of it; what does not fit is left out, since nothing depends on it."""
    try:
        launches = tuple(decode_list(KernelLaunch, plain.get("launches")))
        kernels = tuple(decode_list(TritonKernel, plain.get("triton")))
        loops = decode(Loops, plain["loops"]) if plain.get("loops") is not None else None
    except CandidateFailure:
        return Told()
    busy, there = plain.get("busy_threads"), plain.get("threads_there")
    return Told(
        launches[:MOST_KERNELS],
        kernels[:MOST_KERNELS],
        loops,
        busy if isinstance(busy, float) and 0 <= busy < MOST_US else None,
        there if type(there) is int and there > 0 else None,
    )


def _longest(launches: list[KernelLaunch]) -> list[KernelLaunch]:
    """Of each kernel the launch that took longest, and those kernels first that took longest."""
    found: dict[str, KernelLaunch] = {}
    for launch in launches:
        name = _printable(launch.name)
        known = found.get(name)
        if known is None or launch.time_us > known.time_us:
            found[name] = replace(launch, name=name)
    return sorted(found.values(), key=lambda launch: -launch.time_us)[:MOST_KERNELS]


def _printable(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name[:LONGEST_NAME])


def _triton_kernels(folder: Path) -> list[TritonKernel]:
    """Everything that the candidate's own functions were compiled to, in this process."""
    kernels = [kernel for function in _jit_functions(folder) for kernel in _compiled(function)]
    return [told for kernel in kernels[:MOST_KERNELS] if (told := _triton_kernel(kernel)) is not None]


def _jit_functions(folder: Path) -> list[Any]:
    kind = getattr(sys.modules.get("triton.runtime.jit"), "JITFunction", None)
    if kind is None:
        return []
    found: dict[int, Any] = {}
    for module in list(sys.modules.values()):
        if not str(getattr(module, "__file__", None) or "").startswith(f"{folder}/"):
            continue
        for value in list(vars(module).values()):
            # Autotuners and heuristics stand around what they launch.
            for _ in range(_MOST_WRAPPERS):
                if isinstance(value, kind):
                    found[id(value)] = value
                    break
                value = getattr(value, "fn", None)
    return list(found.values())


def _compiled(function: Any) -> list[Any]:
    caches = getattr(function, "device_caches", None)
    entries = list(caches.values()) if isinstance(caches, dict) else []
    return [kernel for entry in entries if isinstance(entry, tuple) for kernel in entry[0].values()]


def _triton_kernel(kernel: Any) -> TritonKernel | None:
    about, cubin = getattr(kernel, "metadata", None), getattr(kernel, "asm", {}).get("cubin")
    if about is None or not isinstance(cubin, bytes):
        return None
    spilled = getattr(kernel, "n_spills", None)
    return TritonKernel(
        name=_printable(str(about.name)),
        digest=code_digest(cubin),
        threads=about.num_warps * _WARP,
        shared_bytes=about.shared,
        registers=getattr(kernel, "n_regs", None),
        spill_bytes=spilled * _WORD_BYTES if isinstance(spilled, int) else None,
    )
