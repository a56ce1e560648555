"""From log ratios to an interval and a word: how often the interval is right, and what the word demands.

The races are drawn from known truths with fixed seeds, so every count here is the same on every run.
"""

from __future__ import annotations

import math
import random

import pytest
from synthetic_races import Truth, draw_race, pair, timed

from assay.records.speed import FASTER, NO_DIFFERENCE, SLOWER, Interval
from assay.speed.compare import MARGIN, hopeless, log_ratio, outcome, ratio_interval, tight, time_interval
from assay.speed.samples import Block

RACES = 300


def interval_of(truth: Truth, seed: int) -> Interval:
    logs = [[log_ratio(block) for block in run.blocks] for run in draw_race(truth, seed)]
    return ratio_interval(logs)


def outcomes(truth: Truth, races: int) -> list[str]:
    return [outcome(interval_of(truth, seed), MARGIN) for seed in range(races)]


def test_the_interval_holds_the_truth_where_processes_differ() -> None:
    truth = Truth(candidate_us=100, opponent_us=120, process_sd=0.01, noise_sd=0.005)
    intervals = [interval_of(truth, seed) for seed in range(RACES)]
    held = sum(interval.low <= 1.2 <= interval.high for interval in intervals) / RACES
    assert 0.9 <= held <= 0.99
    widths = sorted(interval.high / interval.low - 1 for interval in intervals)
    assert widths[RACES // 2] < 0.1, "right because it says nothing"


def test_resampling_blocks_alone_would_claim_too_much() -> None:
    """Why processes are the unit: pooled into one, the same samples give intervals that miss the truth."""
    truth = Truth(candidate_us=100, opponent_us=120, process_sd=0.01, noise_sd=0.005)
    held = 0
    for seed in range(60):
        pooled = [log_ratio(block) for run in draw_race(truth, seed) for block in run.blocks]
        interval = ratio_interval([pooled])
        held += interval.low <= 1.2 <= interval.high
    assert held / 60 < 0.8


def test_a_copy_is_hardly_ever_called_different() -> None:
    words = outcomes(Truth(process_sd=0.001, noise_sd=0.005), RACES // 2)
    assert words.count(FASTER) <= RACES // 200
    assert words.count(SLOWER) <= RACES // 200


def test_a_twin_three_percent_slower_is_found_out() -> None:
    words = outcomes(Truth(candidate_us=103, opponent_us=100), 60)
    assert words.count(SLOWER) >= 57


def test_a_twin_three_percent_faster_is_found_out() -> None:
    words = outcomes(Truth(candidate_us=97, opponent_us=100), 60)
    assert words.count(FASTER) >= 57


def test_drift_cancels_within_a_block() -> None:
    """The device slows down by a fifth during the race; both contestants feel it alike."""
    generator = random.Random(1)
    logs = []
    for _ in range(3):
        blocks = []
        for k in range(16):
            slower = 1 + 0.2 * k / 16
            own = timed(100 * slower * (1 + generator.gauss(0, 0.002)))
            other = timed(150 * slower * (1 + generator.gauss(0, 0.002)))
            blocks.append(log_ratio(pair(own, other)))
        logs.append(blocks)
    interval = ratio_interval(logs)
    assert interval.low <= 1.5 <= interval.high
    assert interval.high / interval.low < 1.01


def test_each_contestant_counts_by_the_slower_of_its_two_calls() -> None:
    """Telling less on one of two calls gains nothing; the opponent is taken alike."""
    block = Block((timed(100), timed(1)), (timed(3), timed(200)))
    assert log_ratio(block) == pytest.approx(math.log(2))


def test_single_disturbances_do_not_move_the_middle() -> None:
    quiet = ratio_interval([[0.1] * 16, [0.1] * 16, [0.1] * 16])
    shaken = ratio_interval([[0.1] * 13 + [3.0] * 3, [0.1] * 15 + [-2.0], [0.1] * 16])
    assert shaken.middle == pytest.approx(quiet.middle) == pytest.approx(math.exp(0.1))


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (1.0101, 1.2, FASTER),
        (1.01, 1.2, NO_DIFFERENCE),
        (0.995, 1.3, NO_DIFFERENCE),
        (1.001, 1.009, NO_DIFFERENCE),
        (0.8, 1 / 1.01, NO_DIFFERENCE),
        (0.8, 0.9900, SLOWER),
        (0.8, 1.2, NO_DIFFERENCE),
    ],
)
def test_the_whole_interval_must_clear_the_margin(low: float, high: float, word: str) -> None:
    assert outcome(Interval(math.sqrt(low * high), low, high), 0.01) == word


def test_the_margin_is_the_same_both_ways() -> None:
    interval = Interval(1.03, 1.02, 1.04)
    mirrored = Interval(1 / 1.03, 1 / 1.04, 1 / 1.02)
    for margin in (0.0, 0.01, 0.019):
        assert (outcome(interval, margin), outcome(mirrored, margin)) == (FASTER, SLOWER)
    for margin in (0.021, 0.05):
        assert (outcome(interval, margin), outcome(mirrored, margin)) == (NO_DIFFERENCE, NO_DIFFERENCE)


@pytest.mark.parametrize(
    ("low", "high", "settled"),
    [(1.1, 1.5, True), (0.5, 0.9, True), (0.997, 1.003, True), (0.9, 1.1, False), (1.005, 1.2, False)],
)
def test_more_samples_are_taken_until_they_change_nothing(low: float, high: float, settled: bool) -> None:
    assert tight(Interval(math.sqrt(low * high), low, high), 0.01) is settled


@pytest.mark.parametrize(
    "low, middle, high, worth, word",
    [
        (0.2, 0.3, 0.4, 0.0, True),
        (0.2, 0.3, 0.6, 0.0, False),
        (0.3, 0.4, 0.45, 0.0, False),
        (1.0, 1.1, 1.19, 1.2, True),
        (1.1, 1.19, 1.21, 1.2, False),
    ],
)
def test_one_process_settles_only_what_is_far_away(
    low: float, middle: float, high: float, worth: float, word: bool
) -> None:
    assert hopeless(Interval(middle, low, high), worth) is word


def test_two_processes_that_disagree_settle_nothing() -> None:
    interval = ratio_interval([[0.02] * 16, [0.06] * 16])
    assert outcome(interval, MARGIN) == NO_DIFFERENCE
    assert not tight(interval, MARGIN)


def test_one_process_gets_an_interval_from_its_blocks() -> None:
    generator = random.Random(5)
    logs = [math.log(2) + generator.gauss(0, 0.05) for _ in range(16)]
    interval = ratio_interval([logs])
    assert interval.low < interval.middle < interval.high
    assert interval.low < 2 < interval.high
    assert interval == ratio_interval([[], logs, []]), "processes without blocks count for nothing"


def test_the_same_samples_give_the_same_interval() -> None:
    logs = [[log_ratio(block) for block in run.blocks] for run in draw_race(Truth(), 7)]
    assert ratio_interval(logs) == ratio_interval(logs)


@pytest.mark.parametrize(("candidate_us", "opponent_us"), [(0.0, 100.0), (100.0, 0.0), (0.0, 0.0)])
def test_no_time_at_all_is_still_a_number(candidate_us: float, opponent_us: float) -> None:
    log = log_ratio(pair(timed(candidate_us), timed(opponent_us)))
    assert math.isfinite(log)
    assert (log > 0, log < 0) == (candidate_us < opponent_us, candidate_us > opponent_us)
    interval = ratio_interval([[log] * 4] * 3)
    assert math.isfinite(interval.low) and math.isfinite(interval.high)


def test_a_contestants_own_time_is_its_median() -> None:
    interval = time_interval([10.0] * 9 + [500.0, 11.0])
    assert interval.middle == 10.0
    assert interval.low == 10.0 and interval.high <= 11.0
    assert time_interval([42.0]) == Interval(42.0, 42.0, 42.0)
