"""From everything a race collected to a speed verdict, or to the reasons why there can be none.

Pure: no device, no processes. The score is the opponent's device time over the candidate's, cold, both by
events around the call (the child's clock on a CPU), as the median over blocks, averaged over processes in
logarithms. It stands only if the judge's own clock agrees, the opponent was left in peace, and the time is
physically possible.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.records.speed import (
    FASTER,
    NO_DIFFERENCE,
    ClockCheck,
    Conditions,
    Interval,
    Roofline,
    Rung,
    Speed,
    Times,
)
from assay.records.verdict import Finding
from assay.speed.clocks import check_bursts, check_clocks, check_latency, gain_limits
from assay.speed.compare import log_ratio, outcome, ratio_interval
from assay.speed.disturbance import alone_ratio, opponent_slowed, steady_blocks
from assay.speed.samples import Block, ProcessRun

WORLDS_APART = 2.0
"""Beyond the error, the judge's figure over the candidate's: no noise of a CPU explains that."""


@dataclass(frozen=True, slots=True)
class Heat:
    """One race, and what is known about the problem and the device."""

    runs: Sequence[ProcessRun]
    rungs: tuple[Rung, ...]
    opponent: str
    margin: float
    first_call_ms: float | None
    compile_s: float
    graphed: Sequence[Block]
    graphed_absent: str
    early_out: bool
    conditions: Conditions
    precision: Mapping[str, Any]
    calibration: Mapping[str, Any] | None
    preparation_us: float | None = None
    calls_per_weights: int = 0
    """How many calls share the cost of new weights; 0 if it is free."""


def score(heat: Heat, roofline: Roofline | None = None) -> tuple[Speed, list[Finding]]:
    """The speed, and what speaks against believing it; `roofline` is placed by the caller at `device_us`."""
    kept = [blocks for blocks in steady_blocks(heat.runs) if blocks]
    dropped = sum(len(run.blocks) for run in heat.runs) - sum(len(blocks) for blocks in kept)
    if not kept:
        kept, dropped = [list(run.blocks) for run in heat.runs], 0
    blocks = [block for group in kept for block in group]
    reported_us = statistics.median(s.device_us for block in blocks for s in block.candidate)
    checks = _clocks(heat, kept, reported_us)
    clocks = checks[0][0]
    ratio = ratio_interval([[log_ratio(block) for block in group] for group in kept])
    ratio = _charged(ratio, heat, clocks.device_us)
    speed = Speed(
        outcome=outcome(ratio, heat.margin),
        ratio=ratio,
        margin=heat.margin,
        opponent=heat.opponent,
        times=_times(heat, clocks.device_us),
        compile_s=heat.compile_s,
        rungs=_with_ratios(heat, ratio),
        graphed=ratio_interval([[log_ratio(b) for b in heat.graphed]]) if heat.graphed else None,
        graphed_absent=heat.graphed_absent,
        clocks=clocks,
        roofline=roofline,
        conditions=replace(heat.conditions, dropped_blocks=dropped, sm_clock_mhz=_clock_mhz(blocks)),
        processes=len(kept),
        blocks=len(blocks),
        precision=heat.precision,
        early_out=heat.early_out,
        calibration=heat.calibration,
    )
    refuted = _refutations(speed, heat)
    if refuted:
        speed = replace(speed, outcome=NO_DIFFERENCE)
    return speed, _doubts(speed, heat, checks) + refuted


def _charged(ratio: Interval, heat: Heat, candidate_us: float) -> Interval:
    """The ratio with the candidate's time longer by its share of preparing weights, where that is charged."""
    if not heat.calls_per_weights or not heat.preparation_us:
        return ratio
    factor = candidate_us / (candidate_us + heat.preparation_us / heat.calls_per_weights)
    return Interval(ratio.middle * factor, ratio.low * factor, ratio.high * factor)


def _refutations(speed: Speed, heat: Heat) -> list[Finding]:
    """Who would be called faster and is not so everywhere.

    Faster than the opponent alone, too: company may have slowed that down. And wherever nothing can be left
    out. On a CPU the judge's clock has to say so of the timed calls as well, and to show half of the gain's
    logarithm. Its error is large there, and its figure is no worse a guess than the candidate's own.
    """
    if speed.outcome != FASTER:
        return []
    if heat.early_out:
        text = f"{speed.ratio.middle:.3f} times faster in one process: not timed to the end, no difference"
        return [Finding("gain_not_confirmed", text, False)]
    clocks = speed.clocks
    limits = gain_limits(heat.runs, _warm_us(heat))
    alone = alone_ratio(heat.runs, clocks.device_us)
    if alone is not None:
        limits["the opponent alone"] = alone
    refuting = {what: limit for what, limit in limits.items() if limit < 1 + heat.margin}
    if _is_host(speed) and clocks.judge_us > clocks.device_us:
        limit = speed.ratio.middle * clocks.device_us / clocks.judge_us
        if limit < max(1 + heat.margin, math.sqrt(speed.ratio.middle)):
            refuting["the judge's clock"] = limit
    short = [f"{limit:.3f} times by {what}" for what, limit in refuting.items()]
    if not short:
        return []
    text = f"{speed.ratio.middle:.3f} times faster in timed calls, but {', '.join(short)}: no difference"
    return [Finding("gain_not_confirmed", text, False)]


def device_us(runs: Sequence[ProcessRun]) -> float:
    """The candidate's cold time as scored."""
    return statistics.median(s.device_us for run in runs for block in run.blocks for s in block.candidate)


def _times(heat: Heat, cold_us: float) -> Times:
    warm = [sample.device_us for run in heat.runs for sample, _ in run.warm]
    idle = [sample.host_us for run in heat.runs for sample, _ in run.idle[1:]]
    return Times(
        device_us=cold_us,
        warm_us=statistics.median(warm) if warm else None,
        latency_us=statistics.median(idle) if idle else None,
        first_call_ms=heat.first_call_ms,
        preparation_us=heat.preparation_us,
    )


def _with_ratios(heat: Heat, ratio: Interval) -> tuple[Rung, ...]:
    """Every rung against the candidate, by way of the one that raced it."""
    times = {rung.name: rung.times.device_us for rung in heat.rungs if rung.times is not None}
    raced = times.get(heat.opponent)
    return tuple(
        replace(rung, ratio=ratio.middle * times[rung.name] / raced) if rung.name in times and raced else rung
        for rung in heat.rungs
    )


def _clock_mhz(blocks: Sequence[Block]) -> float | None:
    clocks = [sample.sm_mhz for block in blocks for sample in block.opponent if sample.sm_mhz > 0]
    return statistics.median(clocks) if clocks else None


def _warm_us(heat: Heat) -> float:
    """The opponent's."""
    raced = next((rung.times for rung in heat.rungs if rung.name == heat.opponent), None)
    return (raced.warm_us or raced.device_us) if raced is not None else 0.0


def _clocks(heat: Heat, kept: Sequence[Sequence[Block]], reported_us: float) -> list[tuple[ClockCheck, str]]:
    """The candidate's time by both clocks, in whatever exchanges tell something, the timed ones first.

    On a device those behind a gate tell all there is; where there are none, those with nothing to cover.
    """
    timed = check_clocks(kept)
    idle = check_latency(heat.runs, reported_us)
    bursts = check_bursts(heat.runs, reported_us, _warm_us(heat))
    found = [(timed, "timed calls take"), (idle, "an idle call takes"), (bursts, "calls at once take")]
    if _clock_mhz([block for blocks in kept for block in blocks]) is not None:
        found = [
            (bursts, "calls behind a gate take"),
            (idle, "an idle call takes"),
            (timed, "timed calls take"),
        ]
        return [(check, what) for check, what in found if check is not None][:1]
    return [(check, what) for check, what in found if check is not None]


def _doubts(speed: Speed, heat: Heat, checks: Sequence[tuple[ClockCheck, str]]) -> list[Finding]:
    clocks = speed.clocks
    # One is enough; a reason to reject comes before a note.
    doubts = sorted(_clock_doubts(speed, heat, checks), key=lambda doubt: not doubt.fatal)[:1]
    slowed = opponent_slowed(heat.runs)
    if slowed is not None:
        text = f"the opponent took {slowed[0]:.1f} us alone and {slowed[1]:.1f} us beside the candidate"
        doubts.append(Finding("opponent_disturbed", text, _gains(speed, heat)))
    roofline = speed.roofline
    if roofline is not None and clocks.device_us < roofline.invalid_below_us:
        text = (
            f"{clocks.device_us:.2f} us is less than this device can take: "
            f"{roofline.invalid_below_us:.2f} us at its datasheet peak"
        )
        doubts.append(Finding("faster_than_physics", text, True))
    if speed.conditions.dropped_blocks:
        text = f"{speed.conditions.dropped_blocks} blocks left out: the clock fell while they ran"
        doubts.append(Finding("throttled_samples", text, False))
    return doubts


def _clock_doubts(speed: Speed, heat: Heat, checks: Sequence[tuple[ClockCheck, str]]) -> list[Finding]:
    """Where its own account and the judge's clock part."""
    gains = _gains(speed, heat)
    doubts = []
    for k, (check, what) in enumerate(checks):
        # Less than nothing is too little anywhere. The flush of a CPU is long enough to be missed.
        if check.judge_us + check.error_us < 0 or (_is_host(speed) and k == 0 and check.hurried):
            missing_us = check.device_us - check.judge_us
            text = (
                f"by the judge's clock {what} {missing_us:.1f} us less than it tells (within "
                f"{check.error_us:.1f}): something around its calls was left out"
            )
            doubts.append(Finding("clocks_disagree", text, outcome(speed.ratio, heat.margin) == FASTER))
        if not check.agrees:
            text = (
                f"it tells a device time of {check.device_us:.1f} us; what {what} by the judge's clock "
                f"leaves {check.judge_us:.1f} us (within {check.error_us:.1f})"
            )
            apart = check.judge_us - check.error_us > WORLDS_APART * check.device_us
            doubts.append(Finding("clocks_disagree", text, gains or apart))
    return doubts


def _gains(speed: Speed, heat: Heat) -> bool:
    """Whether a doubt is held against it: always, but on a CPU, where noise raises doubts, if it pays."""
    return not _is_host(speed) or outcome(speed.ratio, heat.margin) == FASTER


def _is_host(speed: Speed) -> bool:
    return speed.conditions.sm_clock_mhz is None
