"""What a race collects, before anybody draws a conclusion from it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Timed:
    """One checked call of one contestant."""

    device_us: float
    """By the child's clock."""
    host_us: float
    """Until it was done, where that was waited for; otherwise until it returned."""
    sm_mhz: float
    wall_us: float
    """By the judge's clock, around the whole exchange."""
    launch_us: float = 0.0
    """Until the call returned, by the child's clock."""


@dataclass(frozen=True, slots=True)
class Block:
    """Candidate, opponent, opponent, candidate (or the reverse): the first two on one input, the last two on
    another."""

    candidate: tuple[Timed, Timed]
    opponent: tuple[Timed, Timed]


@dataclass(frozen=True, slots=True)
class BurstPair:
    """Many calls in one exchange, of candidate and opponent on the same inputs; microseconds per call."""

    candidate_us: float
    opponent_us: float
    calls: int


@dataclass(slots=True)
class ProcessRun:
    """One fresh process of the candidate against one process of the opponent."""

    blocks: list[Block] = field(default_factory=list)
    alone_us: list[float] = field(default_factory=list)
    """The opponent's device times while no candidate lived, before and after."""
    warm: list[tuple[Timed, Timed]] = field(default_factory=list)
    """Candidate and opponent on one input, neither with its caches flushed."""
    idle: list[tuple[Timed, Timed]] = field(default_factory=list)
    """The same, each with nothing queued before."""
    bursts: list[BurstPair] = field(default_factory=list)
