"""The time of a copy by NVIDIA's cuda-bench, where that is installed: another clock to agree with.

In a process of its own, because it takes its options from a command line and prints.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LIMIT_S = 120
NOT_INSTALLED = "not installed"
# Medians where it tells them; older versions know the mean alone.
_TAGS = ("nv/cold/time/gpu/median", "nv/cold/time/gpu/mean")
_PROGRAM = """
import sys

import cuda.bench
import torch


def copy(state):
    x = torch.randn(int(sys.argv[1]), device="cuda")

    def launch(one):
        with torch.cuda.stream(torch.cuda.ExternalStream(one.get_stream().addressof())):
            x.clone()

    state.exec(launch, batched=False)


cuda.bench.register(copy)
cuda.bench.run_all_benchmarks(["copy", "--json", sys.argv[2]])
"""


def copy_us(elements: int) -> float | str:
    """Microseconds of a copy of so many floats, caches flushed; or why it cannot be said."""
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bench") is None:
        return NOT_INSTALLED
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told.json"
        command = [sys.executable, "-c", _PROGRAM, str(elements), str(told)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            return f"no answer within {LIMIT_S} s"
        if done.returncode or not told.exists():
            return f"failed: {(done.stderr.strip().splitlines() or ['without a word'])[-1]}"
        return read_us(json.loads(told.read_text()))


def read_us(told: Any) -> float | str:
    """From its record of one benchmark."""
    summaries = told["benchmarks"][0]["states"][0]["summaries"] or []
    values = {one["tag"]: one["data"][0]["value"] for one in summaries if one["data"]}
    for tag in _TAGS:
        if tag in values:
            return float(values[tag]) * 1e6
    return "told no time"
