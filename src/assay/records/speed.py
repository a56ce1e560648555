"""What a speed verdict says: against whom, how sure, how far from the physical limit.

Ratios are the opponent's time over the candidate's: above 1 the candidate is faster. Times are
microseconds of one call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.records.environment import Environment

FASTER, SLOWER, NO_DIFFERENCE = "faster", "slower", "no difference"


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the range that holds it with 95 % confidence."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Times:
    """What one contestant takes for one call."""

    device_us: float
    """Cold: caches flushed, host work hidden as far as the flush covers it. This is what is scored."""
    warm_us: float | None
    """The same with inputs still in the cache."""
    latency_us: float | None
    """Host clock from the call to its finished result, device idle before."""
    first_call_ms: float | None
    """The first call in a fresh process: compilation and tuning at run time included."""
    preparation_us: float | None = None
    """What new weights cost beyond what they cost the opponent; None where there are none, or unmeasured."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One baseline of the ladder."""

    name: str
    settings: Mapping[str, Any]
    absent: str = ""
    """Why there are no times; empty if there are."""
    times: Times | None = None
    device_us: Interval | None = None
    """The cold time with its interval."""
    ratio: float | None = None
    """Its time over the candidate's, where there is a candidate: by way of the opponent."""


@dataclass(frozen=True, slots=True)
class ClockCheck:
    """The candidate's own clock against the judge's."""

    device_us: float
    """By events in the candidate's process; on a CPU, by its own clock. Can be forged."""
    judge_us: float
    """By the judge's clock: the opponent's time and what the candidate's calls take longer than its own."""
    error_us: float
    """How far the judge's figure can be off."""

    @property
    def agrees(self) -> bool:
        """Whether the candidate's figure is not better than the judge's can explain."""
        return self.device_us >= self.judge_us - self.error_us

    @property
    def hurried(self) -> bool:
        """Whether the exchange was shorter than the candidate's figure and all around it can be."""
        return self.device_us > self.judge_us + self.error_us


@dataclass(frozen=True, slots=True)
class Roofline:
    """The least time this device needs for the problem, and how near the candidate came."""

    bytes_read: int
    bytes_written: int
    flops: int
    source: str
    """"declared" by the problem, or "counted" from its graph."""
    bound: str
    """"memory", "compute" or "latency": which limit the floor comes from."""
    floor_us: float
    """At the ceilings measured on this device."""
    percent: float
    """Speed of light: the floor over the candidate's time, in percent."""
    invalid_below_us: float
    """Less than this is a mistake or a forgery, not speed: datasheet peak, or an empty kernel."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The state of the device while it was timed."""

    sm_clock_mhz: float | None
    """Median over the samples, read in the stream before each."""
    memory_clock_mhz: int | None
    temperature_c: int | None
    power_w: float | None
    throttle_reasons: tuple[str, ...]
    other_processes: int
    """On the same device, not ours."""
    flush_bytes: int
    dropped_blocks: int
    """Blocks left out because the clock fell while they ran."""
    forced: bool
    """Scored although the device was busy."""


@dataclass(frozen=True, slots=True)
class Speed:
    """A speed verdict."""

    outcome: str
    """"faster", "slower" or "no difference"."""
    ratio: Interval
    """The opponent's device time over the candidate's."""
    margin: float
    """How far the interval must clear 1."""
    opponent: str
    times: Times
    compile_s: float
    rungs: tuple[Rung, ...]
    graphed: Interval | None
    """The same ratio with both arms replayed from CUDA graphs."""
    graphed_absent: str
    clocks: ClockCheck
    roofline: Roofline | None
    conditions: Conditions
    processes: int
    blocks: int
    precision: Mapping[str, Any]
    """What both arms were held to: TF32 and reduced-precision reductions."""
    early_out: bool = False
    """Stopped after one process: three times slower than the opponent, or not worth more to whoever asked."""
    calibration: Mapping[str, Any] | None = None
    """This machine's own false-positive rate and smallest detectable difference, if it was calibrated."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """Every baseline of one problem on one device; `assay bench` shows it."""

    problem: str
    digest: str
    sizes: Mapping[str, Any]
    rungs: tuple[Rung, ...]
    opponent: str
    """The fastest rung: what candidates are raced against. Empty if none ran."""
    roofline: Roofline | None
    """Of the opponent."""
    conditions: Conditions
    precision: Mapping[str, Any]
    environment: Environment
    seconds: float
    """What it took to measure."""
    measured_at: str
    """UTC; an earlier judge may have measured it, and `conditions` are of now."""
    schema: int = field(default=1)


@dataclass(frozen=True, slots=True)
class SelfTest:
    """How far this machine's clock can be trusted, found by comparing kernels whose relation is known."""

    comparisons: int
    """Of a kernel with itself."""
    false_calls: int
    """How many of them were called faster or slower."""
    rejections: tuple[str, ...]
    """Why others were rejected, the twin's among them: none should be."""
    ratios: tuple[float, ...]
    half_widths: tuple[float, ...]
    """Of their intervals, relative."""
    smallest_detectable: float
    """Relative difference that nineteen of twenty comparisons would notice."""
    twin_slowdown: float
    twin_ratios: tuple[float, ...]
    twin_detected: int
    """How many comparisons called the slower twin slower."""
    spin_us: float
    spin_measured_us: float
    do_bench_ratio: float | None
    """Our time of one kernel over triton.testing.do_bench's; None on a CPU."""
    cuda_bench: str
    """The same over cuda-bench's, or why it cannot be said."""
    environment: Environment
    seconds: float
    schema: int = field(default=2)

    def summary(self) -> dict[str, Any]:
        """What later verdicts carry."""
        return {
            "comparisons": self.comparisons,
            "false_rate": self.false_calls / self.comparisons,
            "rejected": len(self.rejections),
            "smallest_detectable": self.smallest_detectable,
            "twin_slowdown": self.twin_slowdown,
            "twin_detected": f"{self.twin_detected} of {len(self.twin_ratios)}",
        }
