"""Races nobody ran: samples with a known truth behind them, to test what is concluded from samples."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from assay.speed.samples import Block, BurstPair, ProcessRun, Timed

ALONE_CALLS, GATED_CALLS = 4, 2
TURN_US = 290.0


@dataclass(frozen=True)
class Truth:
    """What the contestants really take, and how much everything around them shakes."""

    candidate_us: float = 100.0
    opponent_us: float = 100.0
    process_sd: float = 0.001
    """How far a process's own ratio is from the truth, as a share."""
    noise_sd: float = 0.005
    """How far one sample is from its process, as a share."""
    beside: float = 1.0
    """How much longer the opponent takes beside the candidate than alone."""
    told: float = 1.0
    """Which share of its time the candidate's own clock shows."""
    overhead_us: float = 300.0
    """What an exchange takes besides the call."""
    overhead_sd_us: float = 0.0
    """How far that differs from one process to the next, for both contestants alike."""
    jitter_us: float = 3.0
    """How far the judge's clock shakes: mostly upwards, as on a busy host."""
    processes: int = 3
    blocks: int = 16


def draw_race(truth: Truth, seed: int) -> list[ProcessRun]:
    generator = random.Random(seed)
    runs = []
    for _ in range(truth.processes):
        overhead_us = truth.overhead_us + abs(generator.gauss(0, truth.overhead_sd_us))
        runs.append(_draw_process(replace(truth, overhead_us=overhead_us), generator))
    return runs


def _draw_process(truth: Truth, generator: random.Random) -> ProcessRun:
    effect = 1 + generator.gauss(0, truth.process_sd)
    run = ProcessRun()
    for _ in range(truth.blocks):
        own = [_draw(truth, truth.candidate_us * effect, truth.told, generator) for _ in range(2)]
        other = [_draw(truth, truth.opponent_us * truth.beside, 1.0, generator) for _ in range(2)]
        run.blocks.append(Block((own[0], own[1]), (other[0], other[1])))
    for _ in range(GATED_CALLS):
        spent = (truth.candidate_us * effect, truth.opponent_us * truth.beside)
        run.bursts.append(BurstPair(*(TURN_US + us + generator.uniform(0, 1) for us in spent), 1))
    run.alone_us = [_draw(truth, truth.opponent_us, 1.0, generator).device_us for _ in range(ALONE_CALLS)]
    return run


def _draw(truth: Truth, time_us: float, told: float, generator: random.Random) -> Timed:
    spent_us = time_us * (1 + generator.gauss(0, truth.noise_sd))
    late_us = abs(generator.gauss(0, truth.jitter_us))
    if generator.random() < 0.05:  # now and then the host has something else to do
        late_us += truth.jitter_us * generator.paretovariate(1.2)
    return timed(spent_us * told, wall_us=truth.overhead_us + spent_us + late_us)


def timed(device_us: float, *, wall_us: float = 0.0, sm_mhz: float = 1980.0) -> Timed:
    return Timed(device_us=device_us, host_us=device_us, sm_mhz=sm_mhz, wall_us=wall_us)


def pair(candidate: Timed, opponent: Timed) -> Block:
    """A block in which nothing changed from one input to the other."""
    return Block((candidate, candidate), (opponent, opponent))
