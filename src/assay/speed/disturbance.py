"""Samples that must not count: the clock fell, or somebody slowed the opponent down.

Both are read off the opponent alone, whose process runs no candidate code: a candidate that could drop its
own slow samples would.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from assay.speed.samples import Block, ProcessRun

THROTTLED = 0.9
"""A sample is throttled below this share of the race's median clock."""
SLOWED = 1.25
"""The opponent may take so much longer beside the candidate than alone before the race is void. Less may be
chance, and wins nothing: faster is only who is faster than the opponent alone as well."""
LEAST_US = 0.5
FEWEST = 4


def throttled(block: Block, median_mhz: float) -> bool:
    return any(0 < sample.sm_mhz < THROTTLED * median_mhz for sample in block.opponent)


def steady_blocks(runs: Sequence[ProcessRun]) -> list[list[Block]]:
    """The blocks of each process without those in which the clock fell."""
    clocks = [s.sm_mhz for run in runs for block in run.blocks for s in block.opponent if s.sm_mhz > 0]
    if not clocks:
        return [list(run.blocks) for run in runs]
    middle = statistics.median(clocks)
    return [[block for block in run.blocks if not throttled(block, middle)] for run in runs]


def opponent_slowed(runs: Sequence[ProcessRun]) -> tuple[float, float] | None:
    """(alone, beside the candidate) in microseconds, where the opponent suffered from the company.

    Noise makes both spread; company that costs something lifts most of the second above all of the first.
    """
    alone = sorted(time for run in runs for time in run.alone_us)
    beside = sorted(s.device_us for run in runs for block in run.blocks for s in block.opponent)
    if len(alone) < FEWEST or len(beside) < FEWEST:
        return None
    quiet, loud = statistics.median(alone), statistics.median(beside)
    lifted = beside[len(beside) // 4] > alone[-1 - len(alone) // 4]
    return (quiet, loud) if lifted and loud > SLOWED * quiet + LEAST_US else None


def alone_ratio(runs: Sequence[ProcessRun], candidate_us: float) -> float | None:
    """The opponent's time while no candidate lived over the candidate's; None where it was not taken."""
    alone = [time for run in runs for time in run.alone_us]
    return statistics.median(alone) / candidate_us if alone and candidate_us > 0 else None
