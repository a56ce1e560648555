"""Two clocks that must agree: the child's, which is precise, and the judge's, which nobody can forge.

Both contestants answer the same message over the same inputs with the same copies around the call, and the
opponent can be trusted. So the candidate's exchange may be longer than the opponent's by exactly the
difference of their device times. What it is longer by beyond that, the candidate did not report.

Not covered: a candidate that hides less time than the error; the verdict states the error.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from assay.records.speed import ClockCheck
from assay.speed.samples import Block, Timed

STANDARD_ERRORS = 4.0
SHARE = 0.03
"""Of the time itself: events and host clocks differ by so much on long kernels."""
LEAST_US = 4.0
"""What a Python call costs more in one process than in another."""


def check_clocks(blocks: Sequence[Block], copy_allowance_us: float = 0.0) -> ClockCheck:
    """The candidate's time by both clocks, over all blocks of a race.

    Args:
        copy_allowance_us: what fetching the candidate's outputs may cost more than the opponent's, where
            they lie in memory in another order.
    """
    pairs = [pair for b in blocks for pair in zip(b.candidate, b.opponent, strict=True)]
    judged = [_by_judge(own, other) for own, other in pairs]
    middle = statistics.median(judged)
    deviation = 1.4826 * statistics.median(abs(value - middle) for value in judged)
    error = STANDARD_ERRORS * 1.2533 * deviation / math.sqrt(len(judged))
    reported = statistics.median(own.device_us for own, _ in pairs)
    error += LEAST_US + SHARE * max(middle, reported) + copy_allowance_us
    return ClockCheck(device_us=reported, judge_us=middle, error_us=error)


def _by_judge(own: Timed, other: Timed) -> float:
    return other.device_us + own.wall_us - other.wall_us
