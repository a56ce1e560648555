"""Two clocks: whoever shortens its own is caught, whoever is honest is not, however busy the host."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from synthetic_races import Truth, draw_race, pair, timed

from assay.records.speed import ClockCheck
from assay.speed.clocks import check_bursts, check_clocks
from assay.speed.samples import Block, BurstPair, ProcessRun, Timed

RACES = 40


def check(truth: Truth, seed: int) -> ClockCheck:
    return check_clocks([run.blocks for run in draw_race(truth, seed)])


@pytest.mark.parametrize("candidate_us", [20.0, 5000.0])
@pytest.mark.parametrize("jitter_us", [1.0, 20.0, 200.0])
def test_honest_clocks_agree(candidate_us: float, jitter_us: float) -> None:
    truth = Truth(candidate_us=candidate_us, opponent_us=100, jitter_us=jitter_us, noise_sd=0.01)
    assert [seed for seed in range(RACES) if not check(truth, seed).agrees] == []


def test_honest_clocks_agree_where_exchanges_cost_more_in_one_process_than_in_another() -> None:
    truth = Truth(overhead_us=300, overhead_sd_us=100)
    assert [seed for seed in range(RACES) if not check(truth, seed).agrees] == []
    error_us = check(truth, 0).error_us
    assert error_us < 20, "what differs between processes must not count as error"


@pytest.mark.parametrize("told", [0.5, 0.1, 0.0])
def test_a_shortened_clock_is_caught(told: float) -> None:
    truth = Truth(candidate_us=150, opponent_us=100, told=told, jitter_us=5)
    assert not any(check(truth, seed).agrees for seed in range(RACES))


def test_a_shortened_clock_is_caught_whoever_is_faster() -> None:
    for candidate_us, opponent_us in ((50, 400), (400, 50), (5000, 5000)):
        truth = Truth(candidate_us=candidate_us, opponent_us=opponent_us, told=0.5, jitter_us=2)
        assert not check(truth, 0).agrees, (candidate_us, opponent_us)


def test_the_judges_figure_is_the_truth_within_its_error() -> None:
    truth = Truth(candidate_us=150, opponent_us=100, told=0.1, jitter_us=10)
    found = [check(truth, seed) for seed in range(RACES)]
    near = sum(abs(clocks.judge_us - 150) <= clocks.error_us for clocks in found)
    assert near >= RACES - 1
    assert all(clocks.device_us == pytest.approx(15, rel=0.01) for clocks in found)


def test_a_shaky_host_makes_the_error_larger() -> None:
    errors = [check(Truth(jitter_us=jitter_us), 3).error_us for jitter_us in (1, 10, 100, 1000)]
    assert errors == sorted(errors)
    assert errors[-1] > 10 * errors[0]


def test_what_is_hidden_within_the_error_is_not_called_forgery() -> None:
    """The stated limit of this check, not an accident: see the module's own words."""
    truth = Truth(candidate_us=100, opponent_us=100, jitter_us=3)
    error_us = check(truth, 0).error_us
    assert check(replace(truth, told=1 - 0.5 * error_us / 100), 0).agrees
    assert not check(replace(truth, told=1 - 2.0 * error_us / 100), 0).agrees


def test_telling_more_than_the_truth_is_nobodys_business() -> None:
    assert check(Truth(told=3.0), 0).agrees


def test_a_few_quick_exchanges_prove_nothing() -> None:
    """Work left out on every tenth call does not stand for the rest, which took its time."""
    generator = random.Random(0)
    blocks = []
    for k in range(48):
        spent_us = 5 if k % 10 == 0 else 200
        wall_us = 300 + spent_us + abs(generator.gauss(0, 3))
        other = timed(200, wall_us=500 + abs(generator.gauss(0, 3)))
        blocks.append(pair(timed(5, wall_us=wall_us), other))
    assert not check_clocks([blocks]).agrees


def test_a_candidate_cannot_make_the_error_larger_itself() -> None:
    agreed = [seed for seed in range(RACES) if check_clocks([dawdling(seed)]).agrees]
    assert not agreed


def dawdling(seed: int) -> list[Block]:
    """Takes 200 us and tells 20; idles for 2 ms more on three of four calls."""
    generator = random.Random(seed)
    blocks = []
    for _ in range(48):
        own, other = [], []
        for _ in range(2):
            idle_us = 2000 if generator.random() < 0.75 else 0
            wall_us = 300 + 200 + idle_us + abs(generator.gauss(0, 3))
            own.append(timed(20, wall_us=wall_us))
            other.append(timed(200, wall_us=500 + abs(generator.gauss(0, 3))))
        blocks.append(Block((own[0], own[1]), (other[0], other[1])))
    return blocks


def bursts(candidate_us: float, *, jitter_us: float = 2.0, launch_us: float = 20.0) -> list[ProcessRun]:
    """Three processes whose single calls tell nothing, and two bursts each that do."""
    generator = random.Random(3)
    runs = []
    for _ in range(3):
        sample = Timed(10.0, launch_us, 1980.0, 400.0, launch_us)
        run = ProcessRun(blocks=[Block((sample, sample), (timed(100.0), timed(100.0)))])
        for _ in range(2):
            shaken = [200.0 + generator.uniform(0, jitter_us) for _ in range(2)]
            run.bursts.append(BurstPair(candidate_us + shaken[0], 100.0 + shaken[1], 60.0, 150.0))
        runs.append(run)
    return runs


def test_many_calls_in_one_exchange_allow_what_they_take() -> None:
    found = check_bursts(bursts(80.0), 80.0, 100.0)
    assert found is not None and found.agrees
    assert abs(found.judge_us - 80.0) < found.error_us < 15.0


def test_many_calls_in_one_exchange_contradict_a_forged_time() -> None:
    found = check_bursts(bursts(100.0), 5.0, 100.0)
    assert found is not None and not found.agrees


def test_a_burst_over_warm_caches_may_be_faster_than_cold_calls() -> None:
    found = check_bursts(bursts(60.0), 100.0, 60.0)
    assert found is not None and found.agrees


def test_a_call_that_waits_for_the_device_cannot_hide_its_launches_in_a_burst() -> None:
    waiting = check_bursts(bursts(150.0, launch_us=149.0), 100.0, 100.0)
    assert waiting is not None and waiting.agrees
    quick = check_bursts(bursts(150.0), 100.0, 100.0)
    assert quick is not None and not quick.agrees


def test_without_bursts_there_is_nothing_to_check() -> None:
    assert check_bursts(draw_race(Truth(), 1), 100.0, 100.0) is None
