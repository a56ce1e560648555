"""What a kernel takes of the device, what its counters say, and what follows from both.

Evidence for people and for whoever writes the next attempt; no verdict depends on any of it. Part of it is
the candidate's own word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

MEMORY, COMPUTE, LATENCY, LAUNCH, UNKNOWN = "memory", "compute", "latency", "launch", "unknown"


@dataclass(frozen=True, slots=True)
class KernelResources:
    """One compiled kernel, or the code of a candidate for a CPU; None where nobody said."""

    name: str
    source: str
    """Who said so first: "ptxas", "triton", "launch" (the driver), "object" (host code) or "process"."""
    digest: str = ""
    """sha256 of its object code: names and lines of the source do not change it."""
    registers: int | None = None
    """Per thread."""
    spill_bytes: int | None = None
    """Registers stored to memory and loaded again, per thread."""
    local_bytes: int | None = None
    """Local memory per thread: spilled registers, and arrays indexed by what is not constant."""
    shared_bytes: int | None = None
    """Shared memory per block known to the compiler."""
    dynamic_shared_bytes: int | None = None
    """Shared memory per block asked for at the launch."""
    threads: int | None = None
    """Per block."""
    blocks: int | None = None
    """Of the grid."""
    occupancy: float | None = None
    """Of the warps that a multiprocessor can hold, how many its blocks can be: 0 to 1."""
    limited_by: str = ""
    """"registers", "shared memory", "blocks" or "block size"; empty where nothing limits it."""
    waves: float | None = None
    """The grid over the blocks that the device holds at once."""
    loops: int | None = None
    """Innermost loops with floating-point work in its object code; on a CPU."""
    packed_loops: int | None = None
    """Those of them that work on vectors."""
    vector_bits: int | None = None
    """The widest vectors among them."""
    busy_threads: float | None = None
    """Processor time of all threads over that of the busiest; on a CPU."""
    threads_there: int | None = None
    """Threads that torch would use."""

    def in_words(self) -> str:
        """One line, without the name."""
        return ", ".join((*self._compiled(), *self._launched(), *self._on_a_cpu())) or "nothing is known"

    def _compiled(self) -> Iterator[str]:
        if self.registers is not None:
            yield f"{self.registers} registers a thread"
        if self.spill_bytes is not None:
            yield f"{self.spill_bytes} bytes spilled" if self.spill_bytes else "no spills"
        elif self.local_bytes:
            yield f"{self.local_bytes} bytes of local memory a thread"
        if self.shared_bytes is not None or self.dynamic_shared_bytes is not None:
            yield f"{(self.shared_bytes or 0) + (self.dynamic_shared_bytes or 0)} bytes of shared memory"

    def _launched(self) -> Iterator[str]:
        if self.threads is not None:
            blocks = f"{self.blocks} blocks" if self.blocks is not None else "blocks"
            yield f"{blocks} of {self.threads} threads"
        if self.occupancy is not None:
            limit = f", limited by {self.limited_by}" if self.limited_by else ""
            yield f"occupancy at most {self.occupancy:.0%}{limit}"
        if self.waves is not None:
            yield f"{self.waves:.2g} waves"

    def _on_a_cpu(self) -> Iterator[str]:
        if self.loops is not None and self.packed_loops is not None:
            width = f" ({self.vector_bits} bits)" if self.vector_bits else ""
            yield f"{self.packed_loops} of {self.loops} inner loops vectorised{width}"
        if self.busy_threads is not None:
            there = f" of {self.threads_there}" if self.threads_there else ""
            yield f"{self.busy_threads:.1f}{there} threads busy"


@dataclass(frozen=True, slots=True)
class KernelCounters:
    """What the device counted while one kernel ran."""

    name: str
    launches: int
    values: Mapping[str, float]
    """By the short names of profile/counters.py; those that were not counted are absent."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What was counted, the longest kernel first, or why nothing was."""

    kernels: tuple[KernelCounters, ...] = ()
    case: str = ""
    """Which of the problem's cases was called."""
    absent: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that matters."""

    name: str
    value: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to try."""

    code: str
    """Stable; names the rule."""
    action: str
    reason: str


@dataclass(frozen=True, slots=True)
class Advice:
    """Where a right candidate stands, and what to try next."""

    regime: str
    """"memory", "compute", "latency", "launch" or "unknown": what its time goes into."""
    why: str
    figures: tuple[Figure, ...]
    """At most three."""
    steps: tuple[Step, ...]
    """At most three, the most promising first."""


@dataclass(frozen=True, slots=True)
class Profile:
    """All that `assay profile` shows of a right candidate, beside its verdict."""

    advice: Advice
    counters: Counters = field(default_factory=Counters)
    schema: int = 1
