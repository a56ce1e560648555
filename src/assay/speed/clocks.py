"""Two clocks that must agree: the child's, which is precise, and the judge's, which nobody can forge.

On a device the judge's clock are events of its own around calls that wait behind a gate for their inputs
(judge/gate.py): one call as cold as the timed ones are, and many, which share what taking turns costs. What
the candidate is longer by than the opponent there, it has to be longer by in its own account. Whoever waits
for the device within its calls cannot be timed behind a gate; its idle exchanges have to explain its time.

On a CPU it is a clock around exchanges. Both contestants answer the same message over the same inputs with
the same copies around the call, and the opponent can be trusted. So the candidate's exchange may be longer
than the opponent's by exactly the difference of their times. What it is longer by beyond that, the candidate
did not report. That holds for whatever the exchange has beside the call. Its error is learned from the
opponent alone. What the child does around a timed call (the flush) a candidate can leave out, and take as
much longer unseen. Idle exchanges hold nothing that could be left out, and many calls share one overhead.

Whoever leaves out the flush has warm caches where the opponent has cold ones. So whoever is faster has to be
so where neither has them flushed, and wherever the judge alone tells the time, too (`gain_limits`).

Not covered: a candidate that hides less time than the error, which the verdict states; on a device, calls
that overlap each other where many wait behind one gate: single ones bound that to a few microseconds.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence

from assay.records.speed import ClockCheck
from assay.speed.samples import Block, BurstPair, ProcessRun, Timed

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
    """The least time that exchanges of one call or many allow, beside the one that is reported.

    One exchange has one overhead, whose error falls on many calls. Among many caches are warm, so the
    opponent is taken at its warm time: nobody is slower there than when cold. Its single call behind a gate
    is one of those that scatter when timed.
    """
    checks = []
    on_host = _on_host(_opponents(runs))
    spread_us = _spread([sample.device_us for samples in _opponents(runs) for sample in samples])
    for calls, groups in _by_calls(runs).items():
        excess, error = _burst_excess(groups)
        judge_us = _opponent_us(runs, calls, opponent_warm_us) + excess
        if on_host:  # where whatever else runs takes its share of every exchange
            error += IDLE_LEAST_US + error + HOST_IDLE_SHARE * max(reported_us, judge_us)
        else:
            error += LEAST_GATED_US + (GATE_US + spread_us) / calls + SHARE * max(reported_us, judge_us)
        checks.append(ClockCheck(device_us=reported_us, judge_us=judge_us, error_us=error))
    return max(checks, key=lambda check: check.judge_us - check.error_us, default=None)


def gain_limits(runs: Sequence[ProcessRun], opponent_warm_us: float) -> dict[str, float]:
    """How many times faster than the opponent it can be where nothing is left out, and when that was.

    Like is compared with like. Exchanges of one call or many are told by the judge's clock, on a device less
    what they scatter by; events tell of warm calls to a part of a microsecond. On a CPU, and where calls
    wait for the device within themselves, the judge's clock tells of idle ones.
    """
    on_host = _on_host(_opponents(runs))
    limits = {}
    for calls, groups in _by_calls(runs).items():
        excess, scatter = _burst_excess(groups)
        excess -= 0.0 if on_host else scatter + GATE_GAIN_US / calls
        theirs = _opponent_us(runs, calls, opponent_warm_us)
        limits["many calls at once" if calls > 1 else "single calls"] = _times_faster(theirs, excess)
    if on_host or not limits:
        limits["idle calls"] = _idle_limit(runs, on_host=on_host)
    warm = [pair for run in runs for pair in run.warm]
    if warm and not on_host:
        theirs = statistics.median(other.device_us for _, other in warm)
        excess = statistics.median(own.device_us for own, _ in warm) - theirs
        limits["calls with warm caches"] = _times_faster(theirs, excess)
    return limits


def _times_faster(opponent_us: float, excess_us: float) -> float:
    left_us = opponent_us + excess_us
    return opponent_us / left_us if left_us > 0 else math.inf


def _idle_limit(runs: Sequence[ProcessRun], *, on_host: bool) -> float:
    """By idle exchanges; on a device, where they are long beside most kernels, only what is beyond doubt."""
    # The first call of a process sets things up.
    idle = [run.idle[1:] for run in runs if run.idle[1:]]
    if not idle:
        return math.inf if on_host else 1.0
    own, other = ([[pair[k] for pair in pairs] for pairs in idle] for k in range(2))
    theirs = _usual(other, _latency)
    if on_host:
        return _times_faster(theirs, _usual(own, _wall) - _usual(other, _wall))
    excess, error = _leftover(own, other, _wall, 0.5, seed=0)
    return _times_faster(theirs, excess + error)


def _by_calls(runs: Sequence[ProcessRun]) -> dict[int, list[list[BurstPair]]]:
    """The bursts of each process, by how many calls they had."""
    found: dict[int, list[list[BurstPair]]] = {}
    for run in runs:
        for calls in {pair.calls for pair in run.bursts}:
            found.setdefault(calls, []).append([pair for pair in run.bursts if pair.calls == calls])
    return found


def _opponent_us(runs: Sequence[ProcessRun], calls: int, warm_us: float) -> float:
    """What the opponent takes in such an exchange: a single call is as cold as timed ones are."""
    if calls > 1:
        return warm_us
    return statistics.median(sample.device_us for samples in _opponents(runs) for sample in samples)


def _burst_excess(groups: Sequence[Sequence[BurstPair]]) -> tuple[float, float]:
    """By how much one of its calls is longer than the opponent's in a burst, and how the latter's scatter.

    Within one process: what surrounds the calls differs from one to the next.
    """
    mine = [min(pair.candidate_us for pair in pairs) for pairs in groups]
    theirs = [[pair.opponent_us for pair in pairs] for pairs in groups]
    excess = statistics.median(a - min(b) for a, b in zip(mine, theirs, strict=True))
    return excess, statistics.fmean(max(walls) - min(walls) for walls in theirs)


def _spread(values: Sequence[float]) -> float:
    """What most of them lie within."""
    return _at(values, 0.9) - _at(values, 0.1)


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


def _wall(sample: Timed) -> float:
    return sample.wall_us


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
