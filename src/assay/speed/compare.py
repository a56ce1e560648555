"""From paired samples to a ratio with an interval, and from the interval to a word.

A block's ratio cancels whatever drifts slowly; its median over a process forgets single disturbances;
processes differ from each other by more than chance within one of them explains (addresses, clocks), so they
are the unit that is resampled. Three of anything are few for a bootstrap: its interval is widened to
Student's over the processes' means, which is honest about three.

Not covered: drift inside a block, and ratios between candidates that never met.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

from assay.records.speed import FASTER, NO_DIFFERENCE, SLOWER, Interval
from assay.speed.samples import Block

CONFIDENCE = 0.95
RESAMPLES = 1000
UNKNOWN = math.log(1.5)
LEAST_US = 1e-3
"""A contestant may claim to have taken no time at all; the other clock deals with that."""
MARGIN = 0.01
"""How far the interval must clear 1: what two copies of one kernel may differ by in different processes."""
HOPELESS, HOPELESS_AT_BEST = 1 / 3, 1 / 2
# Student's 97.5 % points for 1, 2, 3, ... degrees of freedom.
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
_NORMAL = 1.96


def log_ratio(block: Block) -> float:
    """Opponent over candidate, for one block: each by the slower of its two calls.

    A candidate that tells the truth on one call and less on the next gains nothing.
    """
    own, other = (max(s.device_us for s in samples) for samples in (block.candidate, block.opponent))
    return math.log(max(other, LEAST_US) / max(own, LEAST_US))


def ratio_interval(processes: Sequence[Sequence[float]], seed: int = 0) -> Interval:
    """The ratio of times from log ratios of blocks, grouped by process."""
    groups = [list(group) for group in processes if group]
    centres = [statistics.median(group) for group in groups]
    middle = statistics.fmean(centres)
    generator = random.Random(seed)
    draws = sorted(
        statistics.fmean(_resampled_median(generator.choice(groups), generator) for _ in groups)
        for _ in range(RESAMPLES)
    )
    low, high = _quantile(draws, (1 - CONFIDENCE) / 2), _quantile(draws, (1 + CONFIDENCE) / 2)
    if sum(len(group) for group in groups) < 2:  # nothing to resample, so nothing is known about the error
        low, high = middle - UNKNOWN, middle + UNKNOWN
    if len(centres) > 1:
        spread = _student(len(centres) - 1) * statistics.stdev(centres) / math.sqrt(len(centres))
        low, high = min(low, middle - spread), max(high, middle + spread)
    return Interval(math.exp(middle), math.exp(low), math.exp(high))


def time_interval(times_us: Sequence[float], seed: int = 0) -> Interval:
    """The median of one contestant's times, with its interval."""
    generator = random.Random(seed)
    draws = sorted(_resampled_median(list(times_us), generator) for _ in range(RESAMPLES // 2))
    low, high = _quantile(draws, (1 - CONFIDENCE) / 2), _quantile(draws, (1 + CONFIDENCE) / 2)
    return Interval(statistics.median(times_us), low, high)


def outcome(ratio: Interval, margin: float) -> str:
    """The word for an interval: a difference only where all of it lies beyond the margin."""
    if ratio.low > 1 + margin:
        return FASTER
    if ratio.high < 1 / (1 + margin):
        return SLOWER
    return NO_DIFFERENCE


def tight(ratio: Interval, margin: float) -> bool:
    """Whether more samples would change nothing: the word is settled, or the interval is narrow."""
    return outcome(ratio, margin) != NO_DIFFERENCE or ratio.high / ratio.low < 1 + margin


def hopeless(first: Interval, worth: float) -> bool:
    """Whether one process is enough to know: far behind, or surely below what is wanted."""
    far_behind = first.middle < HOPELESS and first.high < HOPELESS_AT_BEST
    return far_behind or first.high < worth


def _resampled_median(values: list[float], generator: random.Random) -> float:
    return statistics.median(generator.choices(values, k=len(values)))


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def _student(degrees: int) -> float:
    return _STUDENT[degrees - 1] if degrees <= len(_STUDENT) else _NORMAL
