"""What a candidate's compiled code takes: by the compiler's log, by its own process, by our own arithmetic.

Costs a verdict a few milliseconds and has no say in it. Kernels of libraries are left out.

Not covered: extensions that a candidate builds while it is imported, beyond what the driver says of launches.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from assay.build import EXTENSION_NAME, build_key, needs_build
from assay.candidates import Candidate
from assay.candidates.launch import Invoke, parse_directives
from assay.judge.census import kernel_kind
from assay.judge.occupancy import SmLimits, occupancy, sm_limits
from assay.judge.workshop import Workshop
from assay.records import CandidateFailure, KernelResources
from assay.worker import Child
from assay.worker.device_activity import KernelLaunch, written_name
from assay.worker.object_code import code_digest
from assay.worker.resources import LONGEST_NAME, Told, decode_told

MOST_KERNELS = 16
TIMEOUT_S = 10.0
_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)'")
_PROPERTIES = re.compile(r"Function properties for '?(?P<name>[^'\s]+)'?")
_STACK = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
)
_USED = re.compile(r"Used (?P<registers>\d+) registers")
_SHARED = re.compile(r"(?P<bytes>\d+)(?:\+\d+)? bytes smem")


@dataclass(slots=True)
class _Compiled:
    """One entry function as ptxas tells of it."""

    name: str
    registers: int | None = None
    stack_bytes: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int = 0


def ask_resources(child: Child, candidate: Candidate) -> Told:
    """What the child says; nothing where it cannot or will not. The last thing it is asked."""
    if not child.alive:
        return Told()
    bare = candidate.entry == "launch" and candidate.suffix == ".cpp"
    try:
        head = {"library": f"{EXTENSION_NAME}.so" if bare else ""}
        reply = child.ask("resources", head, timeout_s=TIMEOUT_S)
    except CandidateFailure:
        return Told()
    return decode_told(reply.head)


def build_log(shop: Workshop, candidate: Candidate) -> str:
    """What the compiler said when this candidate was built; empty where nothing was, or nothing is kept."""
    if not needs_build(candidate) or candidate.suffix != ".cu":
        return ""
    known = shop.builds.get(build_key(candidate, shop.toolchain))
    return known.log if known is not None else ""


def describe(
    candidate: Candidate, built: bytes, log: str, told: Told, device: torch.device
) -> tuple[KernelResources, ...]:
    """Everything that is known, put together by name, with the occupancy that follows."""
    if device.type != "cuda":
        return _on_a_cpu(candidate, built, told)
    digest = code_digest(built) if built else ""
    compiled = {kernel.name: kernel for kernel in read_ptxas_log(log, digest)}
    found: list[KernelResources] = []
    for launch in told.launches:
        known = compiled.pop(launch.name, None) or _from_triton(launch, told)
        if known is not None or kernel_kind(launch.name) == "own":
            found.append(_launched(known, launch))
    limits = sm_limits(device)
    kernels = [*found, *compiled.values()][:MOST_KERNELS]
    return tuple(_occupied(kernel, limits) for kernel in kernels) if limits is not None else tuple(kernels)


def read_ptxas_log(log: str, digest: str = "") -> list[KernelResources]:
    """Every entry function of a log made with ptxas -v; never fails, whatever the text is."""
    entries: list[_Compiled] = []
    function = ""
    for line in log.splitlines():
        if found := _ENTRY.search(line):
            entries.append(_Compiled(found["name"]))
            function = ""
        elif found := _PROPERTIES.search(line):
            function = found["name"]
        elif entries and function == entries[-1].name and (found := _STACK.search(line)):
            entries[-1].stack_bytes = int(found["stack"])
            entries[-1].spill_bytes = int(found["stores"]) + int(found["loads"])
        elif entries and (found := _USED.search(line)):
            entries[-1].registers = int(found["registers"])
            shared = _SHARED.search(line)
            entries[-1].shared_bytes = int(shared["bytes"]) if shared else 0
    return [_by_ptxas(entry, digest) for entry in entries if entry.registers is not None]


def _by_ptxas(entry: _Compiled, digest: str) -> KernelResources:
    return KernelResources(
        _short(written_name(entry.name.encode())),
        "ptxas",
        digest=digest,
        registers=entry.registers,
        spill_bytes=entry.spill_bytes,
        local_bytes=entry.stack_bytes,
        shared_bytes=entry.shared_bytes,
    )


def _short(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name[:LONGEST_NAME])


def _from_triton(launch: KernelLaunch, told: Told) -> KernelResources | None:
    """What Triton keeps of the kernel that was launched: an autotuner compiles many of one name."""
    named = [kernel for kernel in told.triton if kernel.name == launch.name]
    shared_bytes = launch.shared_bytes + launch.dynamic_shared_bytes
    wanted = (launch.threads, shared_bytes, launch.registers)
    named.sort(key=lambda k: (k.threads, k.shared_bytes, k.registers) != wanted)
    if not named:
        return None
    spilled = named[0].spill_bytes
    return KernelResources(launch.name, "triton", digest=named[0].digest, spill_bytes=spilled)


def _launched(known: KernelResources | None, launch: KernelLaunch) -> KernelResources:
    known = known or KernelResources(launch.name, "launch")
    return replace(
        known,
        registers=known.registers if known.registers is not None else launch.registers,
        local_bytes=known.local_bytes if known.local_bytes is not None else launch.local_bytes,
        shared_bytes=launch.shared_bytes,
        dynamic_shared_bytes=launch.dynamic_shared_bytes,
        threads=launch.threads,
        blocks=launch.blocks,
    )


def _occupied(kernel: KernelResources, limits: SmLimits) -> KernelResources:
    if kernel.threads is None or kernel.registers is None:
        return kernel
    shared_bytes = (kernel.shared_bytes or 0) + (kernel.dynamic_shared_bytes or 0)
    fits = occupancy(kernel.threads, kernel.registers, shared_bytes, limits)
    at_once = fits.blocks * limits.multiprocessors
    waves = kernel.blocks / at_once if kernel.blocks is not None and at_once else None
    return replace(kernel, occupancy=fits.share, limited_by=fits.limited_by, waves=waves)


def _on_a_cpu(candidate: Candidate, built: bytes, told: Told) -> tuple[KernelResources, ...]:
    interpreted = candidate.language in ("triton", "gluon")
    if interpreted or not (built or told.busy_threads is not None):
        return ()
    loops = told.loops
    return (
        KernelResources(
            ", ".join(_called(candidate)) or candidate.name,
            "object" if built else "process",
            digest=code_digest(built) if built else "",
            loops=loops.loops if loops else None,
            packed_loops=loops.packed_loops if loops else None,
            vector_bits=loops.vector_bits or None if loops else None,
            busy_threads=told.busy_threads,
            threads_there=told.threads_there,
        ),
    )


def _called(candidate: Candidate) -> Sequence[str]:
    """The functions that its directives call, in order."""
    if candidate.entry != "launch":
        return ()
    try:
        steps = parse_directives(candidate.source, candidate.suffix).steps
    except CandidateFailure:  # told as what it failed of
        return ()
    return tuple(dict.fromkeys(step.kernel for step in steps if isinstance(step, Invoke)))
