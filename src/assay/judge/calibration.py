"""The clock tested on kernels whose relation is known, through the very race that candidates run.

A kernel against itself: how often is a difference called where there is none? A twin that does 3 % more: is
it noticed? A kernel that spins for a known time: is that the time measured? The same kernel by another
timer: do both agree? The answers are kept beside later verdicts.

Not covered: other kernels than these. A kernel that touches memory in another pattern may scatter more.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from assay.candidates import Candidate, candidate_from_source
from assay.judge import cuda_bench
from assay.judge.course import Course
from assay.judge.environment import read_environment
from assay.judge.policy import Policy
from assay.judge.prepare import prepare
from assay.judge.race import Race
from assay.judge.stable import Stable
from assay.judge.workshop import Workshop
from assay.problems import Problem, load_problem
from assay.records import NO_DIFFERENCE, SLOWER, CandidateFailure, Interval, JudgeFault, SelfTest
from assay.speed.compare import log_ratio, outcome, ratio_interval
from assay.speed.disturbance import steady_blocks
from assay.speed.opponents import Opponent, make_opponent

TWIN_SLOWDOWN = 1.03
TWIN_RUNS = 10
SPIN_US = 200
COPY_CALLS = 15

_PROBLEM = """
import torch

ELEMENTS = {elements}

class Model(torch.nn.Module):
    def forward(self, x):
        return x.clone()

def get_inputs():
    return [torch.randn(ELEMENTS)]

def get_init_inputs():
    return []
"""
# So many multiplications and additions that change nothing, which the compiler cannot know.
_CHEW_CUDA = """// assay: out y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
// assay: launch chew<<<cdiv(x.numel(), 256), 256>>>(x, y, x.numel(), {rounds}, 1.0, 0.0)
// assay: return y
extern "C" __global__ void chew(const float* x, float* y, long long n, int rounds, float gain, float bias) {{
  long long i = blockIdx.x * 256LL + threadIdx.x;
  if (i >= n) return;
  float value = x[i];
  for (int r = 0; r < rounds; ++r) value = value * gain + bias;
  y[i] = value;
}}
"""
_SPIN_CUDA = """// assay: out y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
// assay: launch spin<<<cdiv(x.numel(), 256), 256>>>(x, y, x.numel(), {duration_ns})
// assay: return y
extern "C" __global__ void spin(const float* x, float* y, long long n, long long duration_ns) {{
  long long i = blockIdx.x * 256LL + threadIdx.x;
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  if (i < n) y[i] = x[i];
  if (i == 0) do {{
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  }} while (now - start < (unsigned long long)duration_ns);
}}
"""
_CHEW_CPU = """// assay: out y = torch.empty(x.shape, dtype=x.dtype)
// assay: call chew(x, y, x.numel(), {rounds}, 1.0, 0.0)
// assay: return y
extern "C" void chew(const float* x, float* y, long long n, int rounds, float gain, float bias) {{
  for (long long i = 0; i < n; ++i) {{
    float value = x[i];
    for (int r = 0; r < rounds; ++r) value = value * gain + bias;
    y[i] = value;
  }}
}}
"""
_SPIN_CPU = """// assay: out y = torch.empty(x.shape, dtype=x.dtype)
// assay: call spin(x, y, x.numel(), {duration_ns})
// assay: return y
#include <chrono>
extern "C" void spin(const float* x, float* y, long long n, long long duration_ns) {{
  auto start = std::chrono::steady_clock::now();
  for (long long i = 0; i < n; ++i) y[i] = x[i];
  while ((std::chrono::steady_clock::now() - start).count() < duration_ns) {{}}
}}
"""


@dataclass(frozen=True, slots=True)
class _Kernels:
    """What is compared, for one kind of device."""

    elements: int
    rounds: int
    suffix: str
    chew: str
    spin: str

    def chewer(self, factor: float = 1.0) -> Candidate:
        source = self.chew.format(rounds=round(self.rounds * factor))
        return candidate_from_source(source, name=f"chew-{factor:g}", suffix=self.suffix)

    def spinner(self) -> Candidate:
        return candidate_from_source(self.spin.format(duration_ns=SPIN_US * 1000), "spin", self.suffix)


_ON_CUDA = _Kernels(4 << 20, 1000, ".cu", _CHEW_CUDA, _SPIN_CUDA)
_ON_CPU = _Kernels(4 << 10, 200, ".cpp", _CHEW_CPU, _SPIN_CPU)


def self_test(shop: Workshop, comparisons: int, on_progress: Callable[[str], None]) -> SelfTest:
    """Compare kernels whose relation is known."""
    start = time.monotonic()
    kernels = _ON_CUDA if shop.device.type == "cuda" else _ON_CPU
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "copy.py"
        path.write_text(_PROBLEM.format(elements=kernels.elements))
        bench = _Bench(shop, load_problem(path), kernels)
        try:
            return _measure(bench, comparisons, on_progress, start)
        finally:
            bench.close()


class _Bench:
    """One kernel as everybody's opponent."""

    def __init__(self, shop: Workshop, problem: Problem, kernels: _Kernels) -> None:
        self.shop = shop
        self.kernels = kernels
        self._problem = problem
        self._prepared = prepare(problem, Policy(derive_hidden=False), shop.device)
        self._stable = self._against(Opponent("chew", kernels.chewer(), "", {}, {}))

    def close(self) -> None:
        self._stable.close()

    def _against(self, opponent: Opponent) -> Stable:
        return Stable(self.shop, self._problem, opponent, b"")

    def race(self, candidate: Candidate) -> Interval:
        """The opponent's time over the candidate's, as a verdict would state it; a rejection propagates."""
        needed = self.shop.policy.processes_timed
        if self.shop.pool.spares < needed:
            self.shop.pool.warm(2 * needed)  # side by side they start in little more time than alone
        self.shop.pool.settle()
        course = Course(self.shop, self._prepared)
        try:
            race = Race(self.shop, course, self._stable, self._problem, candidate, 0.0)
            evidence = race.run(self.shop.built(candidate), b"")
        finally:
            course.close()
        return ratio_interval([[log_ratio(b) for b in blocks] for blocks in steady_blocks(evidence.runs)])

    def device_us(self, opponent: Opponent) -> float:
        """The cold time of one contestant alone."""
        course = Course(self.shop, self._prepared)
        stable = self._against(opponent)
        try:
            seat = stable.seat(0, course)
            times = []
            for _ in range(COPY_CALLS):
                course.deal()
                times.append(course.ask(seat, "cold").time().device_us)
            return statistics.median(times)
        finally:
            stable.close()
            course.close()

    def spin_us(self) -> float:
        return self.device_us(Opponent("spin", self.kernels.spinner(), "", {}, {}))

    def copy_us(self) -> float:
        """Of torch's own copy."""
        return self.device_us(make_opponent(self._problem, "eager"))

    def do_bench_ratio(self) -> float | None:
        """Our time of a copy over that of triton.testing.do_bench."""
        if self.shop.device.type != "cuda":
            return None
        from triton.testing import do_bench  # a second to import, and not there on every machine

        x = torch.randn(self.kernels.elements, device=self.shop.device)
        theirs_ms: Any = do_bench(x.clone, return_mode="median")
        return self.copy_us() / (float(theirs_ms) * 1e3)

    def cuda_bench(self) -> str:
        """The same over cuda-bench's, or why it cannot be said."""
        if self.shop.device.type != "cuda":
            return cuda_bench.NOT_INSTALLED
        theirs_us = cuda_bench.copy_us(self.kernels.elements)
        return theirs_us if isinstance(theirs_us, str) else f"{self.copy_us() / theirs_us:.3f}"


def _measure(bench: _Bench, comparisons: int, on_progress: Callable[[str], None], start: float) -> SelfTest:
    margin = bench.shop.policy.margin
    rejections: list[str] = []

    def compared(what: str, factor: float, times: int) -> list[Interval]:
        intervals = []
        for k in range(times):
            on_progress(f"{what}: {k + 1} of {times}")
            try:
                intervals.append(bench.race(bench.kernels.chewer(factor)))
            except CandidateFailure as failure:
                rejections.append(failure.message)
        if not intervals:
            raise JudgeFault(f"kernels of our own are rejected: {rejections[-1]}")
        return intervals

    same = compared("a kernel against itself", 1.0, comparisons)
    twins = compared(f"a twin that does {TWIN_SLOWDOWN - 1:.0%} more", TWIN_SLOWDOWN, TWIN_RUNS)
    on_progress("known durations")
    half_widths = [(interval.high - interval.low) / 2 / interval.middle for interval in same]
    return SelfTest(
        comparisons=comparisons,
        false_calls=sum(outcome(interval, margin) != NO_DIFFERENCE for interval in same),
        rejections=tuple(rejections),
        ratios=tuple(interval.middle for interval in same),
        half_widths=tuple(half_widths),
        smallest_detectable=margin + sorted(half_widths)[int(0.95 * (len(half_widths) - 1))],
        twin_slowdown=TWIN_SLOWDOWN,
        twin_ratios=tuple(interval.middle for interval in twins),
        twin_detected=sum(outcome(interval, margin) == SLOWER for interval in twins),
        spin_us=SPIN_US,
        spin_measured_us=bench.spin_us(),
        do_bench_ratio=bench.do_bench_ratio(),
        cuda_bench=bench.cuda_bench(),
        environment=read_environment(bench.shop.device),
        seconds=round(time.monotonic() - start, 1),
    )
