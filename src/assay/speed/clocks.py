"""Two clocks that must agree: the child's, which is precise, and the judge's, which nobody can forge.

Both contestants answer the same message over the same inputs with the same copies around the call, and the
opponent can be trusted. So the candidate's exchange may be longer than the opponent's by exactly the
difference of their device times. What it is longer by beyond that, the candidate did not report.

An exchange is only ever delayed, never hurried, so exchanges are compared at their lower quartile, which
noise on the host hardly moves. Work hidden from the child's clock has to be done on every call, since every
answer is checked, and so it lifts the lower quartile as well.

Not covered: a candidate that hides less time than the error; the verdict states the error.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence

from assay.records.speed import ClockCheck
from assay.speed.samples import Block, Timed

QUARTILE = 0.25
RESAMPLES = 300
STANDARD_ERRORS = 3.0
SHARE = 0.03
"""Of the time itself: events and host clocks differ by so much on long kernels."""
LEAST_US = 5.0
"""What a Python call costs more in one process than in another."""


def check_clocks(
    processes: Sequence[Sequence[Block]], copy_allowance_us: float = 0.0, seed: int = 0
) -> ClockCheck:
    """The candidate's time by both clocks, over the blocks of each process of a race.

    Args:
        copy_allowance_us: what fetching the candidate's outputs may cost more than the opponent's, where
            they lie in memory in another order.
    """
    own = [[sample for block in blocks for sample in block.candidate] for blocks in processes]
    other = [[sample for block in blocks for sample in block.opponent] for blocks in processes]
    generator = random.Random(seed)
    judged = _by_judge(own, other)
    draws = [
        _by_judge([_again(s, generator) for s in own], [_again(s, generator) for s in other])
        for _ in range(RESAMPLES)
    ]
    reported = statistics.median(sample.device_us for samples in own for sample in samples)
    error = STANDARD_ERRORS * statistics.stdev(draws) + LEAST_US + SHARE * max(judged, reported)
    return ClockCheck(device_us=reported, judge_us=judged, error_us=error + copy_allowance_us)


def _by_judge(own: Sequence[Sequence[Timed]], other: Sequence[Sequence[Timed]]) -> float:
    """Process by process: what surrounds the call is the same within one, not from one to the next."""
    return statistics.fmean(_of_process(a, b) for a, b in zip(own, other, strict=True))


def _of_process(own: Sequence[Timed], other: Sequence[Timed]) -> float:
    device_us = statistics.median(sample.device_us for sample in other)
    return device_us + _quartile([s.wall_us for s in own]) - _quartile([s.wall_us for s in other])


def _quartile(values: list[float]) -> float:
    return sorted(values)[int(QUARTILE * len(values))]


def _again(samples: Sequence[Timed], generator: random.Random) -> list[Timed]:
    return generator.choices(samples, k=len(samples))
