"""What a full verdict costs: right or wrong, and how fast, on a warm judge, beside KernelBench's path.

    python benchmarks/full_verdict.py [--device cuda] [--repeat 3] [--skip-path] [--out results/FILE.json]

Four cases from a tiny to a 6 GiB problem. "first" is the first verdict on a problem by this judge: it
chooses and calibrates the cases and measures the baselines (the first row also starts the judge). "warm" is
the median of what further candidates pay; each is a source the judge has not seen, so it is built as well,
and comes when the processes for it have started: throughput.py waits for nothing.
"path" is the reconstructed evaluator of kernelbench_path.py in the same run, one fresh process per verdict;
where our candidate is bare CUDA it gets a LayerNorm through load_inline. Memory is the judge's peak against
three times the problem's own tensors and 1 GiB more.

Not covered: statistics over many runs. On a CPU the problems are made small and no aim is printed.
"""

from __future__ import annotations

import argparse
import json
import secrets
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from compiling import compile_at_once
from kernelbench_path import run_path
from shrinking import shrunk_copy

from assay.candidates import Candidate, candidate_from_source, read_candidate
from assay.judge import Judge, Policy, read_environment
from assay.problems import Problem, input_bytes, load_problem
from assay.records import Verdict, to_plain

CASES = Path(__file__).parent / "cases"
PAIRS = (
    # problem, candidate, the same for the path, where it runs
    ("add", "add_kernel.py", "add_kernel.py", "any"),
    ("matmul", "matmul_kernel.py", "matmul_kernel.py", "any"),
    ("layernorm", "layernorm_kernel.cu", "layernorm_inline.py", "cuda"),
    ("softmax", "softmax_kernel.py", "softmax_kernel.py", "cuda"),
)
"""Smallest first: a peak that only grows then still belongs to its row."""
WARM_AIM_S = 3.0
MEMORY_FACTOR, MEMORY_EXTRA_BYTES = 3, 1 << 30


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    problem: str
    candidate: str
    status: str
    outcome: str
    """Of the speed gate, or why there is none."""
    speed: dict[str, Any] | None
    first_s: float
    warm_s: float
    warm_all_s: list[float]
    phases_s: dict[str, float]
    path: dict[str, Any] | None
    ratio: float | None
    """The path's seconds over the warm judge's."""
    peak_bytes: int
    peak_of: str
    own_bytes: int
    allowed_bytes: int
    findings: list[Any]


def unseen(candidate: Candidate) -> Candidate:
    """The same source with one more comment: nothing that was built or learned for it is found again."""
    mark = "#" if candidate.suffix == ".py" else "//"
    text = f"{candidate.source.rstrip()}\n{mark} {secrets.token_hex(8)}\n"
    return candidate_from_source(text, candidate.name, candidate.suffix)


def measure(judge: Judge, problem: Problem, candidate: Candidate, repeat: int) -> tuple[list[float], Verdict]:
    """Seconds of the first verdict and of `repeat` further ones, and the last verdict."""
    times: list[float] = []
    for _ in range(repeat + 1):
        fresh = unseen(candidate)
        judge.settle()
        start = time.monotonic()
        verdict = judge.evaluate(problem, fresh)
        times.append(time.monotonic() - start)
    return times, verdict


def speed_of(verdict: Verdict) -> tuple[str, dict[str, Any] | None]:
    """Outcome and record of the speed gate; records from before it have neither."""
    speed = getattr(verdict, "speed", None)
    if speed is not None:
        return speed.outcome, to_plain(speed)
    return getattr(verdict, "speed_absent", "") or "not measured", None


def own_bytes(judge: Judge, problem: Problem) -> int:
    """Inputs, outputs and weights of one call at the size that is judged."""
    case = judge.prepare(problem).cases[0]
    known = case.calibration
    outputs = sum(
        torch.Size(shape).numel() * getattr(torch, dtype).itemsize
        for shape, dtype in zip(known.shapes, known.dtypes, strict=True)
    )
    weights = case.instance.build_reference(0, torch.device("cpu")).state_dict().values()
    inside = sum(tensor.numel() * tensor.element_size() for tensor in weights)
    return input_bytes(problem, case.instance.case) + outputs + inside


def peak(judge: Judge) -> tuple[int, str]:
    """The judge's own count where it keeps one, since shared arenas are not torch's."""
    counted = getattr(judge, "peak_bytes", None)
    if counted is not None:
        return int(counted() if callable(counted) else counted), "judge and arenas"
    if judge.device.type == "cuda":
        return torch.cuda.max_memory_reserved(judge.device), "judge without arenas"
    return 0, "not counted on a CPU"


def row_of(judge: Judge, files: tuple[Path, Path, Path], repeat: int, skip_path: bool) -> Row:
    problem_path, candidate_path, path_candidate = files
    problem = load_problem(problem_path)
    if judge.device.type == "cuda":
        torch.cuda.empty_cache()
    peak(judge)  # what came before belongs to other rows
    times, verdict = measure(judge, problem, read_candidate(candidate_path), repeat)
    peak_bytes, peak_of = peak(judge)
    outcome, speed = speed_of(verdict)
    warm_s = statistics.median(times[1:])
    path = None if skip_path else run_path(problem_path, path_candidate, str(judge.device))
    tensors = own_bytes(judge, problem)
    return Row(
        problem=problem.name,
        candidate=candidate_path.name,
        status=verdict.status,
        outcome=outcome,
        speed=speed,
        first_s=round(times[0], 3),
        warm_s=round(warm_s, 3),
        warm_all_s=[round(t, 3) for t in times[1:]],
        phases_s=dict(verdict.seconds),
        path=path,
        ratio=None if path is None or path["status"] != "passed" else round(path["wall_s"] / warm_s, 1),
        peak_bytes=peak_bytes,
        peak_of=peak_of,
        own_bytes=tensors,
        allowed_bytes=MEMORY_FACTOR * tensors + MEMORY_EXTRA_BYTES,
        findings=[to_plain(finding) for finding in verdict.findings],
    )


def show(row: Row) -> str:
    speed = "" if row.speed is None else f"{row.speed['ratio']['middle']:.3f}"
    path_s = "" if row.path is None else f"{row.path['wall_s']:.1f}"
    if row.path is not None and row.path["status"] != "passed":
        path_s += f" ({row.path['status']})"
    ratio = "" if row.ratio is None else f"{row.ratio:.1f}"
    memory = f"{row.peak_bytes / 2**30:.2f}/{row.allowed_bytes / 2**30:.2f}"
    line = (
        f"{row.candidate:22}{row.status:13}{row.outcome[:15]:16}{speed:>7}"
        f"{row.first_s:9.2f}{row.warm_s:9.2f}{path_s:>9}{ratio:>7}{memory:>14}"
    )
    reasons = [f"  {finding['code']}: {finding['message']}" for finding in row.findings if finding["fatal"]]
    return "\n".join([line, *reasons])


def show_aims(rows: list[Row]) -> None:
    slowest = max(row.warm_s for row in rows)
    print(f"slowest warm verdict {slowest:.2f} s; the aim is {WARM_AIM_S:g} s or less")
    share = max(row.peak_bytes / row.allowed_bytes for row in rows)
    print(f"largest share of the memory allowed {share:.0%} ({rows[0].peak_of}); the aim is 100 % or less")
    ratios = [row.ratio for row in rows if row.ratio is not None]
    if ratios:
        print(f"the path takes {min(ratios):.1f} to {max(ratios):.1f} times as long; the aim is 10 or more")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device")
    parser.add_argument("--repeat", type=int, default=3, help="warm verdicts per row")
    parser.add_argument("--skip-speed", action="store_true", help="right or wrong only")
    parser.add_argument("--jobs", type=int, default=0, help="compile baselines ahead, so many at once")
    parser.add_argument("--skip-path", action="store_true", help="leave KernelBench's path out")
    parser.add_argument("--inline", action="store_true", help="also one that builds for a minute, every time")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.repeat < 1:
        parser.error("--repeat needs at least one warm verdict")
    pairs = list(PAIRS)
    if options.inline:
        pairs.insert(3, ("layernorm", "layernorm_inline.py", "layernorm_inline.py", "cuda"))
    if options.jobs:
        compile_at_once([CASES / f"{name}.py" for name, *_ in PAIRS], options.device, options.jobs)
    rows: list[Row] = []
    policy = Policy(speed=not options.skip_speed)
    with Judge(options.device, policy) as judge, tempfile.TemporaryDirectory(prefix="small-") as folder:
        on_cpu = judge.device.type == "cpu"
        print(
            f"{'candidate':22}{'status':13}{'speed':16}{'ratio':>7}"
            f"{'first s':>9}{'warm s':>9}{'path s':>9}{'ratio':>7}{'GiB/allowed':>14}"
        )
        for name, candidate, path_candidate, where in pairs:
            if where not in ("any", judge.device.type):
                continue
            problem = CASES / f"{name}.py"
            if on_cpu:
                problem = shrunk_copy(problem, Path(folder))
            files = (problem, CASES / candidate, CASES / path_candidate)
            rows.append(row_of(judge, files, options.repeat, options.skip_path))
            print(show(rows[-1]), flush=True)
        environment = to_plain(read_environment(judge.device))
    if not on_cpu:
        show_aims(rows)
    if options.out:
        record = {"environment": environment, "rows": [asdict(row) for row in rows]}
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if all(row.status == "passed" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
