"""What `assay calibrate` makes of its comparisons."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from assay.judge import calibration
from assay.judge.policy import Policy
from assay.records import CandidateFailure, Interval, JudgeFault, SelfTest


class Bench:
    """Races with given ends: an interval, or why it was rejected."""

    shop = SimpleNamespace(policy=Policy(margin=0.01), device=torch.device("cpu"))
    kernels = calibration._ON_CPU

    def __init__(self, ends: list[Interval | str]) -> None:
        self._ends = ends

    def race(self, candidate: Any) -> Interval:
        end = self._ends.pop(0)
        if isinstance(end, str):
            raise CandidateFailure("rejected", "ran_while_frozen", end)
        return end

    def spin_us(self) -> float:
        return 200.0

    def do_bench_ratio(self) -> None:
        return None

    def cuda_bench(self) -> str:
        return "not installed"


SAME, OFF, SLOWER = Interval(1.0, 0.999, 1.001), Interval(1.03, 1.02, 1.04), Interval(0.97, 0.969, 0.971)


def found(ends: list[Interval | str], comparisons: int) -> SelfTest:
    return calibration._measure(Bench(ends), comparisons, lambda text: None, 0.0)  # type: ignore[arg-type]


def test_false_calls_and_twins_are_counted() -> None:
    told = found([SAME, OFF, SAME, SAME, *[SLOWER] * 9, SAME], 4)
    assert (told.comparisons, told.false_calls, told.twin_detected) == (4, 1, 9)
    assert told.rejections == () and told.ratios == (1.0, 1.03, 1.0, 1.0)
    assert told.summary()["rejected"] == 0 and told.summary()["false_rate"] == 0.25


def test_a_rejected_comparison_is_told_and_ends_nothing() -> None:
    told = found([SAME, "ran", SAME, *[SLOWER] * 9, "late"], 3)
    assert told.rejections == ("ran", "late") and told.summary()["rejected"] == 2
    assert told.ratios == (1.0, 1.0) and len(told.twin_ratios) == 9


def test_where_all_are_rejected_there_is_nothing_to_tell() -> None:
    with pytest.raises(JudgeFault, match="late"):
        found(["ran", "late"], 2)
