"""Samples that must not count, read off the opponent alone."""

from __future__ import annotations

import random

import pytest
from synthetic_races import Truth, draw_race, pair, timed

from assay.speed.disturbance import opponent_slowed, steady_blocks
from assay.speed.samples import Block, ProcessRun

RACES = 300


def run_of(*blocks: Block) -> ProcessRun:
    return ProcessRun(blocks=list(blocks))


def clocked(own_mhz: float, other_mhz: float) -> Block:
    return pair(timed(100, sm_mhz=own_mhz), timed(100, sm_mhz=other_mhz))


def test_blocks_in_which_the_opponents_clock_fell_are_left_out() -> None:
    steady, fallen = clocked(1980, 1980), clocked(1980, 1500)
    assert steady_blocks([run_of(steady, fallen, steady), run_of(steady)]) == [[steady, steady], [steady]]


def test_one_fallen_sample_of_two_is_enough() -> None:
    half = Block((timed(1), timed(1)), (timed(1, sm_mhz=1980), timed(1, sm_mhz=1400)))
    steady = clocked(1980, 1980)
    assert steady_blocks([run_of(steady, half, steady)]) == [[steady, steady]]


def test_what_the_candidate_says_of_its_clock_drops_nothing() -> None:
    blocks = [clocked(own_mhz, 1980) for own_mhz in (1980, 1, 0, 500, 99999)]
    assert steady_blocks([run_of(*blocks)]) == [blocks]


def test_a_device_that_is_slow_throughout_keeps_its_samples() -> None:
    blocks = [clocked(900, 900 + k) for k in range(8)]
    assert steady_blocks([run_of(*blocks)]) == [blocks]


def test_small_movements_are_no_throttling() -> None:
    blocks = [clocked(1980, mhz) for mhz in (1980, 1965, 1900, 1830, 1980)]
    assert steady_blocks([run_of(*blocks)]) == [blocks]


def test_where_no_clock_is_known_nothing_is_left_out() -> None:
    blocks = [clocked(0, 0)] * 3
    assert steady_blocks([run_of(*blocks)]) == [blocks]


@pytest.mark.parametrize("opponent_us", [20.0, 100.0, 5000.0])
def test_an_opponent_slowed_throughout_is_noticed(opponent_us: float) -> None:
    truth = Truth(opponent_us=opponent_us, beside=1.3, noise_sd=0.02)
    for seed in range(50):
        found = opponent_slowed(draw_race(truth, seed))
        assert found is not None
        alone_us, beside_us = found
        assert alone_us == pytest.approx(opponent_us, rel=0.05)
        assert beside_us == pytest.approx(opponent_us * 1.3, rel=0.05)


@pytest.mark.parametrize(
    ("alone_calls", "blocks"),
    [
        ((12, 12, 12), 16),
        ((4, 2, 2), 16),
        ((2, 1, 1), 4),
    ],
)
def test_noise_without_a_shift_is_nobodys_fault(alone_calls: tuple[int, ...], blocks: int) -> None:
    races = [shaken(random.Random(seed), alone_calls, blocks) for seed in range(RACES)]
    assert sum(opponent_slowed(race) is not None for race in races) <= RACES // 100


def test_a_spread_that_is_there_alone_as_well_is_nobodys_fault() -> None:
    """The medians are far apart by chance; a quarter of either lies among the other."""
    blocks = [pair(timed(100), timed(100 if k % 10 < 3 else 140)) for k in range(20)]
    run = ProcessRun(alone_us=[90.0, 95.0, 105.0, 140.0], blocks=blocks)
    assert opponent_slowed([run]) is None
    lifted = [pair(timed(100), timed(140))] * 20
    assert opponent_slowed([ProcessRun(alone_us=run.alone_us, blocks=lifted)]) == (100.0, 140.0)


def shaken(generator: random.Random, alone_calls: tuple[int, ...], blocks: int) -> list[ProcessRun]:
    """The opponent's times within a fifth of 1 ms, alone and beside the candidate alike."""
    runs = []
    for calls in alone_calls:
        run = ProcessRun(alone_us=[generator.uniform(800, 1200) for _ in range(calls)])
        for _ in range(blocks):
            own = timed(1000)
            other = timed(generator.uniform(800, 1200)), timed(generator.uniform(800, 1200))
            run.blocks.append(Block((own, own), other))
        runs.append(run)
    return runs


def test_a_slow_candidate_is_no_disturbance() -> None:
    assert opponent_slowed(draw_race(Truth(candidate_us=5000, opponent_us=100), 0)) is None


def test_a_few_samples_show_nothing() -> None:
    run = ProcessRun(alone_us=[100.0] * 3, blocks=[pair(timed(100), timed(500))] * 16)
    assert opponent_slowed([run]) is None
    run = ProcessRun(alone_us=[100.0] * 8, blocks=[pair(timed(100), timed(500))])
    assert opponent_slowed([run]) is None
