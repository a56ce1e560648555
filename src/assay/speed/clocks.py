"""Two clocks that must agree: the child's, which is precise, and the judge's, which nobody can forge.

Both contestants answer the same message over the same inputs with the same copies around the call, and the
opponent can be trusted. So the candidate's exchange may be longer than the opponent's by exactly the
difference of their device times. What it is longer by beyond that, the candidate did not report.

That holds for whatever the exchange has beside the call. It is compared at all three quartiles, so that one
forged sample in four is found, and its error is learned from the opponent alone.

What the child does around a timed call (flush, cover) a candidate can leave out, and take as much longer
unseen. Idle exchanges hold nothing that could be left out: there the latency is checked, and a device time
may not be less than the latency by more than launching explains.

Many calls in one exchange share its overhead. On a device they wait behind a gate for inputs that come when
all is queued, and the judge times them by events of its own (judge/gate.py): there the error is a part of a
microsecond. Whoever waits for the device within its calls has no time there, and has to be faster in idle
exchanges instead.

Whoever leaves out the flush has warm caches where the opponent has cold ones. So whoever is faster has to be
so where neither has them flushed, too (`gain_limits`).

Not covered: a candidate that hides less time than the error; the verdict states the error.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence

from assay.records.speed import ClockCheck
from assay.speed.samples import Block, ProcessRun, Timed

QUARTILES, HOST_QUARTILES = (0.25, 0.5, 0.75), (0.25,)
"""On a CPU the call itself competes with whatever else runs: only undisturbed exchanges tell something."""
RESAMPLES = 200
STANDARD_ERRORS = 4.0
SHARE, HOST_SHARE = 0.03, 0.25
"""Of the time itself: events and host clocks differ by so much on long kernels."""
LEAST_US = 5.0
"""What a Python call costs more in one process than in another."""
LAUNCH_FACTOR, LEAST_LAUNCH_US = 3.0, 100.0
"""Launching may take the candidate so many times longer than the opponent, or this."""
GATE_US, GATE_GAIN_US = 6.0, 3.0
"""What turns on the device may cost one process more than another, and usually do; shared by many calls."""
LEAST_GATED_US = 1.0
IDLE_SHARE, HOST_IDLE_SHARE, IDLE_LEAST_US = 0.1, 0.35, 25.0


def check_clocks(processes: Sequence[Sequence[Block]], seed: int = 0) -> ClockCheck:
    """The candidate's time by both clocks, over the blocks of each process of a race."""
    own = [[sample for block in blocks for sample in block.candidate] for blocks in processes]
    other = [[sample for block in blocks for sample in block.opponent] for blocks in processes]
    reported = statistics.median(sample.device_us for samples in own for sample in samples)
    checks = []
    share, quartiles = (HOST_SHARE, HOST_QUARTILES) if _on_host(other) else (SHARE, QUARTILES)
    for quartile in quartiles:
        excess, error = _leftover(own, other, _around_device, quartile, seed)
        error += LEAST_US + share * max(reported, reported + excess)
        checks.append(ClockCheck(device_us=reported, judge_us=reported + excess, error_us=error))
    return max(checks, key=lambda check: check.judge_us - check.error_us)


def check_latency(runs: Sequence[ProcessRun], reported_us: float, seed: int = 0) -> ClockCheck | None:
    """The least device time that verified latencies allow, beside the one that is reported."""
    # The first call of a process sets things up.
    own = [[pair[0] for pair in run.idle[1:]] for run in runs if run.idle[1:]]
    other = [[pair[1] for pair in run.idle[1:]] for run in runs if run.idle[1:]]
    if not own:
        return None
    share, quartile = (HOST_IDLE_SHARE, 0.25) if _on_host(other) else (IDLE_SHARE, 0.5)
    latency = _at([sample.host_us for samples in own for sample in samples], quartile)
    excess, error = _leftover(own, other, _around_latency, quartile, seed)
    error += IDLE_LEAST_US + share * (latency + max(excess, 0.0))
    launch = min(_usual(own, _launch), allowed_launch_us(_usual(other, _launch)))
    if _on_host(other):
        # A CPU launches nothing, but wakes its threads, whoever asks.
        cold = [s.device_us for run in runs for block in run.blocks for s in block.opponent]
        launch = max(0.0, _usual(other, _latency) - statistics.median(cold))
    return ClockCheck(device_us=reported_us, judge_us=latency + max(excess, 0.0) - launch, error_us=error)


def check_bursts(
    runs: Sequence[ProcessRun], reported_us: float, opponent_warm_us: float
) -> ClockCheck | None:
    """The least device time that many calls in one exchange allow, beside the one that is reported.

    One exchange has one overhead, whose error falls on many calls. In a burst caches are warm, so the
    opponent is taken at its warm time: nobody is slower there than when cold.
    """
    raced = [run for run in runs if run.bursts]
    if not raced:
        return None
    excess, error = _burst_excess(raced)
    judge_us = opponent_warm_us + excess
    if _on_host(_opponents(raced)):  # where whatever else runs takes its share of every exchange
        error += IDLE_LEAST_US + error + HOST_IDLE_SHARE * max(reported_us, judge_us)
    else:
        error += LEAST_GATED_US + GATE_US / _burst_calls(raced) + SHARE * max(reported_us, judge_us)
    return ClockCheck(device_us=reported_us, judge_us=judge_us, error_us=error)


def gain_limits(runs: Sequence[ProcessRun], opponent_warm_us: float) -> dict[str, float]:
    """How many times faster than the opponent it can be where nothing is left out, and when that was.

    Like is compared with like. Many calls at once are told by the judge's clock, on a device less what they
    scatter by; events tell of warm calls to a part of a microsecond. On a CPU, and where calls wait for the
    device within themselves, the judge's clock tells of idle ones.
    """
    on_host = _on_host(_opponents(runs))
    limits = {}
    if raced := [run for run in runs if run.bursts]:
        excess, scatter = _burst_excess(raced)
        excess -= 0.0 if on_host else scatter + GATE_GAIN_US / _burst_calls(raced)
        limits["many calls at once"] = _times_faster(opponent_warm_us, excess)
    idle = [pair for run in runs for pair in run.idle[1:]]
    if idle and (on_host or not raced):
        excess = statistics.median(own.wall_us for own, _ in idle)
        excess -= statistics.median(other.wall_us for _, other in idle)
        theirs = statistics.median(other.host_us for _, other in idle)
        limits["idle calls"] = _times_faster(theirs, excess)
    warm = [pair for run in runs for pair in run.warm]
    if warm and not on_host:
        theirs = statistics.median(other.device_us for _, other in warm)
        excess = statistics.median(own.device_us for own, _ in warm) - theirs
        limits["calls with warm caches"] = _times_faster(theirs, excess)
    return limits


def _times_faster(opponent_us: float, excess_us: float) -> float:
    left_us = opponent_us + excess_us
    return opponent_us / left_us if left_us > 0 else math.inf


def _burst_excess(raced: Sequence[ProcessRun]) -> tuple[float, float]:
    """By how much one of its calls is longer than the opponent's in a burst, and how the latter's scatter.

    Within one process: what surrounds the calls differs from one to the next.
    """
    full = [[pair for pair in run.bursts if pair.calls == _burst_calls([run])] for run in raced]
    mine = [min(pair.candidate_us for pair in pairs) for pairs in full]
    theirs = [[pair.opponent_us for pair in pairs] for pairs in full]
    excess = statistics.median(a - min(b) for a, b in zip(mine, theirs, strict=True))
    return excess, statistics.fmean(max(walls) - min(walls) for walls in theirs)


def _burst_calls(raced: Sequence[ProcessRun]) -> int:
    """Of those that count: where a long one failed, the short ones after it tell less."""
    return min(max(pair.calls for pair in run.bursts) for run in raced)


def _opponents(runs: Sequence[ProcessRun]) -> list[list[Timed]]:
    return [[sample for block in run.blocks for sample in block.opponent] for run in runs]


def allowed_launch_us(opponent_us: float) -> float:
    """How long a candidate may take to launch where the opponent takes this long, before it shows."""
    return max(LAUNCH_FACTOR * opponent_us, LEAST_LAUNCH_US)


def _on_host(processes: Sequence[Sequence[Timed]]) -> bool:
    """Whether this is a CPU: nobody reads a multiprocessor's clock there."""
    return not any(sample.sm_mhz for samples in processes for sample in samples)


def _usual(processes: Sequence[Sequence[Timed]], what: Callable[[Timed], float]) -> float:
    return statistics.median(what(sample) for samples in processes for sample in samples)


def _launch(sample: Timed) -> float:
    return sample.launch_us


def _latency(sample: Timed) -> float:
    return sample.host_us


def _around_device(sample: Timed) -> float:
    return sample.wall_us - sample.device_us


def _around_latency(sample: Timed) -> float:
    return sample.wall_us - sample.host_us


def _leftover(
    own: Sequence[Sequence[Timed]],
    other: Sequence[Sequence[Timed]],
    around: Callable[[Timed], float],
    quartile: float,
    seed: int,
) -> tuple[float, float]:
    """How much more the candidate's exchanges hold beside the call than the opponent's, and the error.

    Process by process: what surrounds the call is the same within one, not from one to the next.
    """
    generator = random.Random(seed)
    mine = [[around(sample) for sample in samples] for samples in own]
    theirs = [[around(sample) for sample in samples] for samples in other]
    excess = statistics.fmean(_at(a, quartile) - _at(b, quartile) for a, b in zip(mine, theirs, strict=True))
    draws = [
        statistics.fmean(_at(generator.choices(values, k=len(values)), quartile) for values in theirs)
        for _ in range(RESAMPLES)
    ]
    spread = statistics.fmean(_at(values, 0.75) - _at(values, 0.25) for values in theirs)
    # The candidate's own quartile scatters as the opponent's does; its tail may be somewhat longer.
    return excess, STANDARD_ERRORS * 2**0.5 * statistics.stdev(draws) + max(quartile - 0.25, 0.0) * spread


def _at(values: Sequence[float], quartile: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(quartile * len(ordered)), len(ordered) - 1)]
