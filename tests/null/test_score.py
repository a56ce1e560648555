"""From a race to a speed verdict: what it says, and every reason not to believe it."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from synthetic_races import Truth, draw_race, pair, timed

from assay.records.speed import (
    FASTER,
    NO_DIFFERENCE,
    SLOWER,
    Conditions,
    Interval,
    Roofline,
    Rung,
    Speed,
    Times,
)
from assay.records.verdict import Finding
from assay.speed.samples import Block, BurstPair, ProcessRun, Timed
from assay.speed.score import Heat, device_us, score

IDLE = Conditions(
    sm_clock_mhz=None,
    memory_clock_mhz=None,
    temperature_c=40,
    power_w=None,
    throttle_reasons=(),
    other_processes=0,
    flush_bytes=1 << 20,
    dropped_blocks=0,
    forced=False,
)


UNCONFIRMED = ["gain_not_confirmed"]


def notes(doubts: list[Finding]) -> list[str]:
    """The codes of what was found, none of it a reason to reject."""
    assert not any(doubt.fatal for doubt in doubts), doubts
    return [doubt.code for doubt in doubts]


def rung(name: str, cold_us: float | None, absent: str = "") -> Rung:
    times = None if cold_us is None else Times(cold_us, cold_us, cold_us, 1.0)
    return Rung(name, {}, absent, times)


def heat_of(runs: list[ProcessRun], **changes: Any) -> Heat:
    heat = Heat(
        runs=runs,
        rungs=(rung("eager", 200.0), rung("compile", 100.0), rung("max-autotune", None, "does not compile")),
        opponent="compile",
        margin=0.01,
        first_call_ms=12.0,
        compile_s=0.0,
        graphed=(),
        graphed_absent="CUDA graphs need a GPU",
        early_out=False,
        conditions=IDLE,
        precision={"allow_tf32": False},
        calibration=None,
    )
    return replace(heat, **changes)


def judged(truth: Truth, **changes: Any) -> tuple[Speed, list[Finding]]:
    return score(heat_of(draw_race(truth, 1), **changes))


def floor_at(invalid_below_us: float) -> Roofline:
    return Roofline(
        bytes_read=1,
        bytes_written=1,
        flops=0,
        source="counted",
        bound="memory",
        floor_us=2 * invalid_below_us,
        percent=50.0,
        invalid_below_us=invalid_below_us,
    )


@pytest.mark.parametrize(("candidate_us", "word"), [(50, FASTER), (100, NO_DIFFERENCE), (200, SLOWER)])
def test_an_honest_race_is_believed(candidate_us: float, word: str) -> None:
    speed, doubts = judged(Truth(candidate_us=candidate_us))
    assert doubts == []
    assert speed.outcome == word
    assert speed.ratio.middle == pytest.approx(100 / candidate_us, rel=0.01)
    assert speed.ratio.low <= speed.ratio.middle <= speed.ratio.high
    assert speed.times.device_us == pytest.approx(candidate_us, rel=0.01)
    assert (speed.opponent, speed.processes, speed.blocks) == ("compile", 3, 48)
    assert speed.times.first_call_ms == 12.0
    assert speed.conditions.dropped_blocks == 0


def test_a_forged_clock_is_a_reason() -> None:
    speed, doubts = judged(Truth(candidate_us=150, told=0.2))
    told = [("clocks_disagree", True), ("gain_not_confirmed", False)]
    assert [(doubt.code, doubt.fatal) for doubt in doubts] == told
    assert not speed.clocks.agrees
    assert f"{speed.clocks.device_us:.1f} us" in doubts[0].message
    assert f"{speed.clocks.judge_us:.1f} us" in doubts[0].message


def shorter(sample: Timed, mhz: float, by_us: float = 0.0) -> Timed:
    return replace(sample, sm_mhz=mhz, wall_us=sample.wall_us - by_us)


def raced_at(mhz: float, truth: Truth, *, left_out_us: float = 0.0) -> list[ProcessRun]:
    """On a GPU at this clock, or with none on a CPU; the candidate leaves something out of its exchanges."""
    runs = draw_race(truth, 1)
    for run in runs:
        run.bursts = run.bursts if mhz else []
        for k, block in enumerate(run.blocks):
            own, other = block.candidate, block.opponent
            run.blocks[k] = Block(
                (shorter(own[0], mhz, left_out_us), shorter(own[1], mhz, left_out_us)),
                (shorter(other[0], mhz), shorter(other[1], mhz)),
            )
    return runs


@pytest.mark.parametrize(("mhz", "word"), [(0.0, NO_DIFFERENCE), (1700.0, FASTER)])
def test_on_a_cpu_faster_has_to_be_so_by_the_judges_clock_too(mhz: float, word: str) -> None:
    """It tells a tenth less than it takes, which the error of a busy host would excuse."""
    speed, doubts = score(heat_of(raced_at(mhz, Truth(candidate_us=100, told=0.9, jitter_us=40.0))))
    assert notes(doubts) == UNCONFIRMED * (word == NO_DIFFERENCE) and speed.ratio.low > 1 + speed.margin
    assert speed.outcome == word


@pytest.mark.parametrize(("told", "word"), [(0.1, NO_DIFFERENCE), (1.0, FASTER)])
def test_on_a_cpu_the_judges_clock_has_to_show_much_of_a_gain(told: float, word: str) -> None:
    """A little faster, it tells a tenth of its time; the error of a busy host would excuse both."""
    truth = Truth(candidate_us=80, told=told, jitter_us=60.0)
    speed, doubts = score(heat_of(raced_at(0.0, truth)))
    assert speed.ratio.low > 1 + speed.margin and speed.outcome == word
    assert ("gain_not_confirmed" in [doubt.code for doubt in doubts]) == (word == NO_DIFFERENCE)


def test_on_a_cpu_an_exchange_may_not_be_too_short_either() -> None:
    """It leaves out the flush and tells half: each hides the other."""
    truth = Truth(candidate_us=160, told=0.5)
    _, doubts = score(heat_of(raced_at(0.0, truth, left_out_us=150.0)))
    assert [(doubt.code, doubt.fatal) for doubt in doubts] == [("clocks_disagree", True)]
    assert "something around its calls was left out" in doubts[0].message
    honest = Truth(candidate_us=50)
    assert score(heat_of(raced_at(0.0, honest)))[1] == []


@pytest.mark.parametrize(("told", "fatal"), [(0.5, False), (0.25, True)])
def test_on_a_cpu_clocks_that_disagree_for_nothing_are_a_note_unless_worlds_apart(
    told: float, fatal: bool
) -> None:
    speed, doubts = score(heat_of(raced_at(0.0, Truth(candidate_us=400, told=told))))
    assert speed.outcome in (SLOWER, NO_DIFFERENCE)
    assert [(doubt.code, doubt.fatal) for doubt in doubts] == [("clocks_disagree", fatal)]


@pytest.mark.parametrize(("burst_us", "word"), [(70.0, NO_DIFFERENCE), (50.0, FASTER)])
@pytest.mark.parametrize("mhz", [0.0, 1700.0])
def test_who_is_faster_is_so_many_calls_at_once_too(mhz: float, burst_us: float, word: str) -> None:
    """Caches that are warm for the candidate alone show where neither has them flushed."""
    runs = raced_at(mhz, Truth(candidate_us=70))
    for run in runs:
        run.bursts = [BurstPair(burst_us + 20, 70.0 + 20 + 0.1 * k, 24) for k in range(2)]
    rungs = (Rung("compile", {}, "", Times(100.0, 70.0, 120.0, 1.0)),)
    speed, doubts = score(heat_of(runs, rungs=rungs))
    assert speed.ratio.low > 1.3
    assert (speed.outcome, notes(doubts)) == (word, UNCONFIRMED * (word == NO_DIFFERENCE))


@pytest.mark.parametrize(("mhz", "word"), [(0.0, NO_DIFFERENCE), (1700.0, FASTER)])
def test_many_calls_at_once_refute_no_more_than_they_can_tell_on_a_device(mhz: float, word: str) -> None:
    """They scatter by more than the gain: events decide."""
    runs = raced_at(mhz, Truth(candidate_us=70))
    for run in runs:
        run.bursts = [BurstPair(100.0, 90.0 + 25 * k, 24) for k in range(2)]
    rungs = (Rung("compile", {}, "", Times(100.0, 70.0, 120.0, 1.0)),)
    speed, doubts = score(heat_of(runs, rungs=rungs))
    assert (speed.outcome, notes(doubts)) == (word, UNCONFIRMED * (word == NO_DIFFERENCE))


@pytest.mark.parametrize(("warm_us", "word"), [(70.0, NO_DIFFERENCE), (60.0, FASTER), (0.0, FASTER)])
def test_who_is_faster_on_a_device_is_so_with_warm_caches_too(warm_us: float, word: str) -> None:
    """Whoever leaves the flush out and tells the truth has one time for both, which the opponent has warm."""
    runs = raced_at(1700.0, Truth(candidate_us=70))
    for run in runs:
        run.warm = [(timed(warm_us, sm_mhz=1700.0), timed(70.0, sm_mhz=1700.0))] * 4
    speed, doubts = score(heat_of(runs))
    assert (speed.outcome, notes(doubts)) == (word, UNCONFIRMED * (word == NO_DIFFERENCE))
    assert all("1.000 times by calls with warm caches" in doubt.message for doubt in doubts)


def test_warm_caches_tell_nothing_of_gain_on_a_cpu() -> None:
    """There the judge's own clock tells of unflushed calls."""
    runs = raced_at(0.0, Truth(candidate_us=70))
    for run in runs:
        run.warm = [(timed(70.0), timed(70.0))] * 4
    assert score(heat_of(runs))[0].outcome == FASTER


@pytest.mark.parametrize(("mhz", "word"), [(0.0, NO_DIFFERENCE), (1700.0, FASTER)])
def test_who_is_faster_on_a_cpu_is_so_when_idle_too(mhz: float, word: str) -> None:
    runs = raced_at(mhz, Truth(candidate_us=70))
    for run in runs:
        run.idle = [(timed(70.0, wall_us=410.0, sm_mhz=mhz), timed(80.0, wall_us=410.0, sm_mhz=mhz))] * 5
        run.bursts = [BurstPair(70.0, 100.0, 24)] * 2
    speed, doubts = score(heat_of(runs))
    assert (speed.outcome, notes(doubts)) == (word, UNCONFIRMED * (word == NO_DIFFERENCE))


def test_a_disturbed_opponent_is_a_reason() -> None:
    _, doubts = judged(Truth(candidate_us=50, beside=1.3))
    assert [(doubt.code, doubt.fatal) for doubt in doubts] == [("opponent_disturbed", True)]
    assert "100." in doubts[0].message or "99." in doubts[0].message
    assert "130." in doubts[0].message or "129." in doubts[0].message


@pytest.mark.parametrize(("candidate_us", "fatal"), [(50, True), (300, False)])
def test_on_a_cpu_a_disturbed_opponent_is_held_against_who_gains_by_it(
    candidate_us: float, fatal: bool
) -> None:
    _, doubts = score(heat_of(raced_at(0.0, Truth(candidate_us=candidate_us, beside=1.3))))
    assert [(doubt.code, doubt.fatal) for doubt in doubts] == [("opponent_disturbed", fatal)]


def test_an_impossible_time_is_a_reason() -> None:
    runs = draw_race(Truth(candidate_us=50), 1)
    _, doubts = score(heat_of(runs), floor_at(60))
    assert [(doubt.code, doubt.fatal) for doubt in doubts] == [("faster_than_physics", True)]
    assert score(heat_of(runs), floor_at(40))[1] == []


def test_a_clock_that_fell_is_a_note() -> None:
    runs = draw_race(Truth(), 1)
    for run in runs:
        for k, block in enumerate(run.blocks):
            run.blocks[k] = at_clock(block, 1400 if k == 3 else 1980)
    speed, doubts = score(heat_of(runs))
    assert [(doubt.code, doubt.fatal) for doubt in doubts] == [("throttled_samples", False)]
    assert speed.conditions.dropped_blocks == 3
    assert (speed.blocks, speed.processes) == (45, 3)
    assert speed.conditions.sm_clock_mhz == 1980


def at_clock(block: Block, mhz: float) -> Block:
    other = (replace(block.opponent[0], sm_mhz=mhz), replace(block.opponent[1], sm_mhz=mhz))
    return Block(block.candidate, other)


def test_every_reason_is_told_at_once() -> None:
    runs = draw_race(Truth(candidate_us=150, told=0.1, beside=1.4), 1)
    runs[0].blocks[0] = at_clock(runs[0].blocks[0], 900)
    for run in runs:
        run.blocks[1:] = [at_clock(block, 1980) for block in run.blocks[1:]]
    _, doubts = score(heat_of(runs), floor_at(60))
    assert {doubt.code for doubt in doubts} == {
        "clocks_disagree",
        "opponent_disturbed",
        "faster_than_physics",
        "throttled_samples",
        "gain_not_confirmed",
    }


def test_rungs_are_compared_by_way_of_the_one_that_raced() -> None:
    speed, _ = judged(Truth(candidate_us=50))
    ratios = {rung.name: rung.ratio for rung in speed.rungs}
    assert ratios["compile"] == pytest.approx(speed.ratio.middle)
    assert ratios["eager"] == pytest.approx(2 * speed.ratio.middle)
    assert ratios["max-autotune"] is None
    assert [rung.absent for rung in speed.rungs] == ["", "", "does not compile"]


def test_an_opponent_without_times_gives_no_ratios() -> None:
    speed, _ = judged(Truth(), rungs=(rung("eager", 200.0),), opponent="compile")
    assert [rung.ratio for rung in speed.rungs] == [None]


def test_whoever_was_let_go_early_is_not_called_faster() -> None:
    truth = Truth(candidate_us=50, processes=1)
    speed, doubts = judged(truth, early_out=True)
    assert (speed.outcome, notes(doubts)) == (NO_DIFFERENCE, UNCONFIRMED)
    assert "not timed to the end" in doubts[0].message


def test_an_early_end_is_carried() -> None:
    truth = Truth(candidate_us=1000, processes=1)
    speed, doubts = judged(truth, early_out=True)
    assert (speed.early_out, speed.processes, speed.outcome, doubts) == (True, 1, SLOWER, [])
    assert judged(Truth())[0].early_out is False


def test_graphed_blocks_have_a_ratio_of_their_own() -> None:
    speed, _ = judged(Truth(), graphed=[pair(timed(10), timed(20))] * 4, graphed_absent="")
    assert speed.graphed is not None
    assert speed.graphed.middle == pytest.approx(2.0)
    assert judged(Truth())[0].graphed is None
    assert judged(Truth())[0].graphed_absent == "CUDA graphs need a GPU"


def test_latency_leaves_the_first_call_of_each_process_out() -> None:
    runs = draw_race(Truth(), 1)
    for run in runs:
        other = timed(30)
        run.idle = [(timed(90_000), other), (timed(30), other), (timed(32), other)]
        run.warm = [(timed(40), other), (timed(42), other)]
    times = score(heat_of(runs))[0].times
    assert (times.latency_us, times.warm_us) == (31, 41)
    assert judged(Truth())[0].times.latency_us is None


def test_the_scored_time_is_what_the_roof_is_asked_about() -> None:
    runs = draw_race(Truth(candidate_us=50), 1)
    assert device_us(runs) == score(heat_of(runs))[0].times.device_us


def test_a_race_without_a_steady_block_still_has_an_answer() -> None:
    """Half of the samples at either clock: nothing is above the line that a median draws."""
    blocks = [at_clock(pair(timed(100, wall_us=400), timed(100, wall_us=400)), 1)]
    blocks += [at_clock(pair(timed(100, wall_us=400), timed(100, wall_us=400)), 1980)]
    run = ProcessRun(blocks=[Block(b.candidate, (b.opponent[0], blocks[0].opponent[0])) for b in blocks])
    speed, _ = score(heat_of([run]))
    assert speed.blocks + speed.conditions.dropped_blocks == 2
    assert math.isfinite(speed.ratio.middle)


def test_every_other_sample_forged_is_a_reason() -> None:
    runs = draw_race(Truth(candidate_us=100), 1)
    for run in runs:
        for k, block in enumerate(run.blocks):
            told_us = block.candidate[0].device_us if k % 8 == 0 else 10.0
            run.blocks[k] = Block((telling(block.candidate[0], told_us), block.candidate[1]), block.opponent)
    speed, doubts = score(heat_of(runs))
    assert speed.outcome != FASTER or any(doubt.fatal for doubt in doubts)


def telling(sample: Timed, told_us: float) -> Timed:
    return replace(sample, device_us=told_us)


def test_slowing_half_of_the_opponents_calls_does_not_win() -> None:
    generator = random.Random(1)
    runs = draw_race(Truth(candidate_us=100, opponent_us=100), 1)
    for run in runs:
        run.blocks = [
            Block(b.candidate, (timed(200 if generator.random() < 0.9 else 100, wall_us=500), b.opponent[1]))
            for b in run.blocks
        ]
    speed, doubts = score(heat_of(runs))
    assert speed.outcome != FASTER or any(doubt.fatal for doubt in doubts)


def test_slowing_the_opponent_a_little_does_not_win() -> None:
    speed, doubts = judged(Truth(candidate_us=100, opponent_us=100, beside=1.04, noise_sd=0.002))
    assert speed.outcome != FASTER or any(doubt.fatal for doubt in doubts)


def test_one_block_settles_nothing() -> None:
    run = ProcessRun(blocks=[pair(timed(95, wall_us=395), timed(100, wall_us=400))])
    speed, _ = score(heat_of([run]))
    assert speed.ratio != Interval(speed.ratio.middle, speed.ratio.middle, speed.ratio.middle)


def test_preparing_weights_is_free_unless_it_is_charged() -> None:
    free, _ = judged(Truth(candidate_us=50, opponent_us=100), preparation_us=1000.0)
    assert free.outcome == "faster" and free.times.preparation_us == 1000.0
    charged, _ = judged(Truth(candidate_us=50, opponent_us=100), preparation_us=1000.0, calls_per_weights=10)
    assert charged.ratio.middle == pytest.approx(free.ratio.middle / 3, rel=0.02)
    assert charged.outcome == "slower"


def test_charging_over_many_calls_costs_little() -> None:
    free, _ = judged(Truth(candidate_us=50, opponent_us=100))
    charged, _ = judged(
        Truth(candidate_us=50, opponent_us=100), preparation_us=1000.0, calls_per_weights=10**6
    )
    assert charged.ratio.middle == pytest.approx(free.ratio.middle, rel=1e-3)


def test_an_idle_call_that_takes_longer_is_a_reason() -> None:
    """Its calls cannot wait behind a gate; cold ones agree, because what surrounds them was left out."""
    runs = draw_race(Truth(candidate_us=50), 1)
    for run in runs:
        run.bursts.clear()
        for latency_us in (60.0, 400.0, 400.0, 400.0):
            own = Timed(latency_us, latency_us, 1980.0, 200.0 + latency_us, 10.0)
            run.idle.append((own, Timed(110.0, 110.0, 1980.0, 310.0, 10.0)))
    _, doubts = score(heat_of(runs))
    told = [("clocks_disagree", True), ("gain_not_confirmed", False)]
    assert [(doubt.code, doubt.fatal) for doubt in doubts] == told
    assert "an idle call takes" in doubts[0].message


def test_many_calls_at_once_that_take_longer_are_a_reason() -> None:
    runs = draw_race(Truth(candidate_us=50), 1)
    for run in runs:
        run.bursts = [BurstPair(300.0, 200.0, 24), BurstPair(301.0, 201.0, 24)]
    _, doubts = score(heat_of(runs))
    told = [("clocks_disagree", True), ("gain_not_confirmed", False)]
    assert [(doubt.code, doubt.fatal) for doubt in doubts] == told
    assert "calls behind a gate take" in doubts[0].message
    for run in runs:
        run.bursts = [BurstPair(150.0, 200.0, 24), BurstPair(151.0, 201.0, 24)]
    assert score(heat_of(runs))[1] == []


@pytest.mark.parametrize(("candidate_us", "fatal"), [(50, True), (100, False)])
def test_calls_that_take_less_than_nothing_are_held_against_who_gains(
    candidate_us: float, fatal: bool
) -> None:
    """A burst without its cover is shorter than the opponent's by more than the opponent's own time."""
    runs = raced_at(1700.0, Truth(candidate_us=candidate_us))
    for run in runs:
        run.bursts = [BurstPair(200.0, 500.0, 24), BurstPair(201.0, 503.0, 24)]
    _, doubts = score(heat_of(runs))
    assert [(doubt.code, doubt.fatal) for doubt in doubts] == [("clocks_disagree", fatal)]
    assert "something around its calls was left out" in doubts[0].message


def test_the_opponent_alone_decides_who_is_faster() -> None:
    """Beside the candidate the opponent took longer than alone, but not by enough to void the race."""
    runs = draw_race(Truth(candidate_us=100, opponent_us=100, beside=1.1, noise_sd=0.001), 1)
    speed, doubts = score(heat_of(runs))
    assert speed.ratio.low > 1 + speed.margin
    assert (speed.outcome, notes(doubts)) == (NO_DIFFERENCE, UNCONFIRMED)


@pytest.mark.parametrize("mhz", [0.0, 1700.0])
@pytest.mark.parametrize("told_us", [0.0, 1e-9, 1e9])
@pytest.mark.parametrize("wall_us", [1.0, 300.0, 5e3])
@pytest.mark.parametrize("burst_us", [0.0, 90.0])
def test_no_forged_time_brings_the_judge_down(
    mhz: float, told_us: float, wall_us: float, burst_us: float
) -> None:
    """Whatever the candidate tells, and however its exchanges look, there is a speed or a reason."""
    forged = Timed(told_us, told_us, 0.0, wall_us, told_us)
    other = timed(100.0, wall_us=300.0, sm_mhz=mhz)
    run = ProcessRun(
        blocks=[Block((forged, forged), (other, other))] * 2,
        alone_us=[100.0] * 4,
        warm=[(forged, other)] * 2,
        idle=[(forged, other)] * 3,
        bursts=[BurstPair(burst_us, 100.0, 24)] * 3,
    )
    assert score(heat_of([run] * 3))[0].outcome in (FASTER, SLOWER, NO_DIFFERENCE)
