"""How many calls a race takes: by the problem's size and the opponent's time, never by the candidate."""

from __future__ import annotations

import random
from dataclasses import dataclass

from assay.judge.course import LARGE_BYTES, LONG_US

MIDDLE_BYTES = 1 << 27
SETTLING_US, MOST_SETTLING = 60e3, 12
SYSTEM = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class Plan:
    """Calls of one race."""

    blocks: int
    """Per process; each is two calls of either contestant."""
    idle: int
    warm: int
    """Both: pairs of calls, without a flush."""
    alone: int
    """Calls of the opponent before a candidate's process is loaded, and after it has ended."""
    audits: float
    """Calls per process that are compared with the oracle; the first process has one at least."""
    bursts: int
    """Of either contestant, per process; of large problems in the first process alone."""
    decoys: float
    """Calls per process with other contents, somewhere among the timed ones; compared with the oracle. One of
    the processes has one at least."""

    @staticmethod
    def for_size(size_bytes: int, opponent_us: float) -> Plan:
        if size_bytes > LARGE_BYTES:
            # No cache holds a part of it worth the name: there is no warm time.
            return Plan(blocks=1, idle=1, warm=0, alone=1, audits=0.2, bursts=1, decoys=0)
        if opponent_us > LONG_US:
            decoys = 1 if size_bytes <= MIDDLE_BYTES else 0.4
            return Plan(blocks=4, idle=3, warm=1, alone=2, audits=0.5, bursts=2, decoys=decoys)
        if size_bytes > MIDDLE_BYTES:
            return Plan(blocks=6, idle=3, warm=2, alone=2, audits=0.5, bursts=2, decoys=0.4)
        return Plan(blocks=12, idle=5, warm=4, alone=2, audits=1, bursts=3, decoys=1)

    def audited(self, process: int) -> set[int]:
        """Which calls of a process are compared with the oracle: drawn anew, known to nobody."""
        count = _drawn(self.audits)
        count = max(count, 1) if process == 0 else count
        return set(SYSTEM.sample(range(2 * self.blocks), min(count, 2 * self.blocks)))

    def decoy_blocks(self, *, sure: bool) -> list[int]:
        """Before which blocks of a process a call with other contents comes, or after the last; if this
        process must be `sure` to have one, it has."""
        count = _drawn(self.decoys)
        count = max(count, 1) if sure and self.decoys else count
        return [SYSTEM.randrange(self.blocks + 1) for _ in range(count)]


def settling_calls(opponent_us: float) -> int:
    """On a CPU, before calls of a fresh process that are too long for many at once: the first ones wait for
    memory that later ones find there. As many as are worth their time."""
    return min(MOST_SETTLING, int(SETTLING_US / opponent_us))


def _drawn(average: float) -> int:
    """A whole number with this average."""
    return int(average) + (SYSTEM.random() < average % 1)
