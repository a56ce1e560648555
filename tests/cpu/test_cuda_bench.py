"""What cuda-bench tells, read; the program itself needs a GPU."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from assay.judge import cuda_bench


def told(**times_s: str) -> dict[str, Any]:
    """A record as version 0.3 writes it: numbers are words."""
    tags = {"median": "nv/cold/time/gpu/median", "mean": "nv/cold/time/gpu/mean"}
    summaries = [{"tag": "nv/cold/sample_size", "data": [{"name": "value", "type": "int64", "value": "499"}]}]
    for name, value in times_s.items():
        data = [{"name": "value", "type": "float64", "value": value}]
        summaries.append({"tag": tags[name], "name": "GPU Time", "data": data})
    return {"benchmarks": [{"name": "copy", "states": [{"summaries": summaries, "is_skipped": False}]}]}


def test_the_median_is_read_where_there_is_one() -> None:
    assert cuda_bench.read_us(told(mean="0.0010", median="0.0000123")) == pytest.approx(12.3)
    assert cuda_bench.read_us(told(mean="0.0010")) == pytest.approx(1000.0)


def test_a_record_without_times_says_so() -> None:
    assert cuda_bench.read_us(told()) == "told no time"
    skipped = {"benchmarks": [{"states": [{"summaries": None, "is_skipped": True}]}]}
    assert cuda_bench.read_us(skipped) == "told no time"


def test_where_it_is_not_installed_that_is_the_answer() -> None:
    if importlib.util.find_spec("cuda") is not None:
        pytest.skip("something of CUDA's is installed here")
    assert cuda_bench.copy_us(1024) == cuda_bench.NOT_INSTALLED
