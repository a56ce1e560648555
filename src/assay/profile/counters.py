"""The device's own counters, by ncu, over one call of a candidate at the size it is scored at.

ncu is found on PATH or in the toolkit. Drivers keep counters for administrators unless told otherwise, and a
candidate never runs as one: where they are refused, or ncu is missing, it is said why and nothing is counted.
The verdict's census (kernels and their times) is what remains then.

Not covered: the candidate's process writes the log, or could: what is read here is its word. Counters of
several devices; metrics by line of the source.
"""

from __future__ import annotations

import csv
import math
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay.records import CandidateFailure, Counters, KernelCounters

if TYPE_CHECKING:
    from assay.candidates import Candidate
    from assay.judge import Judge
    from assay.problems import Problem
    from assay.worker.inspection import Inspection

METRICS: Mapping[str, str] = {
    "time_ns": "gpu__time_duration.sum",
    "sm_percent": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "busiest_percent": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_write_bytes": "dram__bytes_write.sum",
    "dram_bytes_per_s": "dram__bytes.sum.per_second",
    "l2_percent": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_hit_percent": "lts__t_sector_hit_rate.pct",
    "l1_percent": "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1_hit_percent": "l1tex__t_sector_hit_rate.pct",
    "load_efficiency_percent": "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",
    "store_efficiency_percent": "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct",
    "occupancy_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "active_cycles": "sm__cycles_active.avg",
    "instructions": "sm__inst_executed.sum",
    "fp32_percent": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "tensor_percent": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "registers": "launch__registers_per_thread",
    "blocks_by_blocks": "launch__occupancy_limit_blocks",
    "blocks_by_registers": "launch__occupancy_limit_registers",
    "blocks_by_shared": "launch__occupancy_limit_shared_mem",
    "blocks_by_warps": "launch__occupancy_limit_warps",
    "waves": "launch__waves_per_multiprocessor",
    "stall_long_scoreboard": "smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct",
    "stall_short_scoreboard": "smsp__warp_issue_stalled_short_scoreboard_per_warp_active.pct",
    "stall_barrier": "smsp__warp_issue_stalled_barrier_per_warp_active.pct",
    "stall_branch": "smsp__warp_issue_stalled_branch_resolve_per_warp_active.pct",
    "stall_memory_queue": "smsp__warp_issue_stalled_lg_throttle_per_warp_active.pct",
    "stall_shared_queue": "smsp__warp_issue_stalled_mio_throttle_per_warp_active.pct",
    "stall_math": "smsp__warp_issue_stalled_math_pipe_throttle_per_warp_active.pct",
    "uniform_branch_percent": "smsp__sass_average_branch_targets_threads_uniform.pct",
}
"""Short names, and ncu's."""
TIMEOUT_S = 300.0
_SUMS = ("time_ns", "dram_read_bytes", "dram_write_bytes", "instructions", "active_cycles")
_NO_METRIC = re.compile(r"[Ff]ailed to find metric[^\n]*?\b(?P<name>[a-z0-9]+__[\w.]+)")
_THOUSANDS = re.compile(r"^-?\d{1,3}(,\d{3})+(\.\d+)?$")
_DRIVER_SETTINGS = Path("/proc/driver/nvidia/params")
_REFUSED = (
    "the driver gives counters to administrators alone, and a candidate never runs as one; allow them with "
    "the option NVreg_RestrictProfilingToAdminUsers=0 of the nvidia module"
)
_PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")


def find_ncu() -> str | None:
    """The program, from PATH or where toolkits put it."""
    if found := shutil.which("ncu"):
        return found
    home = os.environ.get("CUDA_HOME")
    places = [Path(home, "bin", "ncu")] if home else []
    for pattern in _PLACES:
        places += sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)
    return next((str(place) for place in places if os.access(place, os.X_OK)), None)


def ncu_paths(ncu: str) -> tuple[str, ...]:
    """What has to be readable for ncu to run: itself, and the folders that the script in bin leads to."""
    needed = set()
    for place in (Path(ncu), Path(os.path.realpath(ncu))):
        needed |= {place if place.parent.name == "bin" else place.parent}
        needed |= set(place.parent.parent.glob("nsight-compute*"))
    needed.add(Path("/opt/nvidia/nsight-compute"))
    return tuple(sorted(str(place) for place in needed if place.exists()))


def measure_counters(judge: Judge, problem: Problem, candidate: Candidate) -> Counters:
    """Counters of one call of a candidate that has passed; never fails for want of them."""
    if why := _refused_here(judge.device.type):
        return Counters(absent=why)
    ncu = find_ncu()
    if ncu is None:
        return Counters(absent="there is no ncu on PATH: install Nsight Compute")
    metrics = tuple(METRICS.values())
    counted, unknown = _count(judge, problem, candidate, ncu, metrics)
    if unknown:
        # Names differ from chip to chip; the rest is worth a second run.
        left = tuple(name for name in metrics if name not in unknown)
        counted, _ = _count(judge, problem, candidate, ncu, left)
    return counted


def _refused_here(kind: str) -> str:
    """Why it is not worth trying; empty if it is."""
    if kind != "cuda":
        return "counters are read on a GPU alone"
    try:
        settings = _DRIVER_SETTINGS.read_text()
    except OSError:
        return ""
    return _REFUSED if re.search(r"^RmProfilingAdminOnly: 1$", settings, re.MULTILINE) else ""


def _count(
    judge: Judge, problem: Problem, candidate: Candidate, ncu: str, metrics: tuple[str, ...]
) -> tuple[Counters, set[str]]:
    """What was counted, and the metrics for which nothing was because this chip has none of that name."""
    from assay.judge.counting import CounterTool  # imports torch, which reading a log does not need

    try:
        run = judge.count_under(problem, candidate, CounterTool(ncu, ncu_paths(ncu), metrics, TIMEOUT_S))
    except CandidateFailure as failure:
        return Counters(absent=f"its process failed under ncu: {failure.message}"), set()
    if run is None:
        return Counters(absent="every case of the problem is too large to be run under ncu"), set()
    case, outcome = run
    kernels = parse_ncu_csv(outcome.log)
    if kernels:
        return Counters(kernels, case), set()
    unknown = {found["name"] for found in _NO_METRIC.finditer(outcome.log)}
    return Counters(case=case, absent=why_nothing(outcome)), unknown


def why_nothing(outcome: Inspection) -> str:
    """Why ncu counted nothing, in its words where it has any."""
    words = f"{outcome.log}\n{outcome.output}"
    if "ERR_NVGPUCTRPERM" in words:
        return _REFUSED
    if outcome.status is None:
        return f"ncu took longer than {TIMEOUT_S:g} s and was stopped"
    complaints = [line for line in words.splitlines() if line.startswith(("==ERROR==", "==WARNING=="))]
    if complaints:
        return f"ncu: {complaints[0].partition('== ')[2].strip()[:300]}"
    said = outcome.output.strip().splitlines()[-1:]
    if outcome.status:
        return (
            f"the program under ncu failed: {said[0][:300]}" if said else f"ncu ended with {outcome.status}"
        )
    return "ncu counted nothing: the call launched no kernel"


def parse_ncu_csv(text: str) -> tuple[KernelCounters, ...]:
    """Counters of each kernel, the longest first; never fails, whatever the text is.

    Takes both forms: a column for each metric (--page raw), or a line for each.
    """
    rows = _rows(text)
    launches: dict[str, tuple[str, dict[str, float]]] = {}
    short = {name: key for key, name in METRICS.items()}
    for number, row in enumerate(rows):
        if not row.get("Kernel Name"):
            continue
        identity = row.get("ID") or str(number)
        _, values = launches.setdefault(identity, (row["Kernel Name"], {}))
        given = [(row["Metric Name"], row.get("Metric Value", ""))] if "Metric Name" in row else row.items()
        for metric, word in given:
            number_read = _number(word)
            if metric in short and number_read is not None:
                values[short[metric]] = number_read
    return _by_kernel(launches.values())


def _rows(text: str) -> list[dict[str, str]]:
    """The lines of the table; ncu's own lines, which begin with ==, stand around and between them."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    try:
        table = list(csv.reader(lines))
    except csv.Error:
        return []
    starts = [k for k, row in enumerate(table) if "Kernel Name" in row]
    if not starts:
        return []
    header = table[starts[0]]
    return [dict(zip(header, row, strict=False)) for row in table[starts[0] + 1 :]]


def _number(word: str | None) -> float | None:
    """As ncu writes it: with thousands apart, with a decimal comma, or not at all (n/a)."""
    text = (word or "").strip()
    text = text.replace(",", "") if _THOUSANDS.match(text) else text.replace(",", ".")
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _by_kernel(launches: Iterable[tuple[str, dict[str, float]]]) -> tuple[KernelCounters, ...]:
    named: dict[str, list[dict[str, float]]] = {}
    for name, values in launches:
        if values:
            named.setdefault(name, []).append(values)
    kernels = [KernelCounters(name, len(each), _together(each)) for name, each in named.items()]
    return tuple(sorted(kernels, key=lambda kernel: -kernel.values.get("time_ns", 0.0)))


def _together(launches: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Sums of what adds up, and means by time of what does not."""
    weights = [max(values.get("time_ns", 1.0), 1.0) for values in launches]
    found: dict[str, float] = {}
    for name in METRICS:
        there = [
            (values[name], weight) for values, weight in zip(launches, weights, strict=True) if name in values
        ]
        if not there:
            continue
        total = sum(value for value, _ in there)
        mean = sum(value * weight for value, weight in there) / sum(weight for _, weight in there)
        found[name] = total if name in _SUMS else mean
    return found
