"""How many verdicts one warm judge gives in an hour, over a queue of mixed candidates.

    python benchmarks/throughput.py [--count 100] [--device cuda] [--problems NAME ...] [--out FILE.json]

The queue is that of mixed.py: right, wrong, slow, crashing and broken candidates for problems of the ladder.
Before the clock starts each problem gets a first verdict of its own, which pays for calibration and
baselines; that time is reported apart. Then candidates are judged one after the other on the device while a
few threads build those further back. Statuses are compared with what each candidate deserves.

Not covered: several judges on one device, and candidates that come over a network.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mixed import ARGUMENTS, Mixed, deal, first_of
from shrinking import shrunk_copy

from assay.judge import Judge, Policy, default_cache, read_environment
from assay.problems import Problem, load_problem
from assay.records import AssayError, CandidateFailure, to_plain

LADDER = Path(__file__).parent / "ladder"
BUILDERS = 4
SLOWEST = 5


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate of the queue and what became of it."""

    candidate: str
    problem: str
    kind: str
    expected: str
    status: str
    """A verdict's, or "no_verdict"."""
    outcome: str
    seconds: float
    phases_s: dict[str, float]
    message: str = ""


def judged(judge: Judge, problem: Problem, one: Mixed) -> Row:
    """One verdict, printed as it comes: a run that is cut short still shows what it had."""
    start = time.monotonic()
    status, outcome, message = "no_verdict", "", ""
    phases: dict[str, float] = {}
    try:
        verdict = judge.evaluate(problem, one.candidate)
    except AssayError as error:
        message = str(error)
    else:
        status, phases = verdict.status, dict(verdict.seconds)
        speed = getattr(verdict, "speed", None)
        outcome = speed.outcome if speed is not None else getattr(verdict, "speed_absent", "")
        message = "; ".join(f"{f.code}: {f.message}" for f in verdict.findings if f.fatal)
    seconds = round(time.monotonic() - start, 3)
    print(f"{one.candidate.name:36}{status:14}{outcome[:20]:22}{seconds:8.2f} s", flush=True)
    return Row(
        one.candidate.name, one.problem, one.kind, one.expected, status, outcome, seconds, phases, message
    )


def run_queue(judge: Judge, problems: Mapping[str, Problem], queue: Sequence[Mixed]) -> list[Row]:
    """Every verdict in order, builds running ahead where the judge can."""
    ahead = getattr(judge, "build_ahead", None)
    if ahead is None:
        return [judged(judge, problems[one.problem], one) for one in queue]
    with ThreadPoolExecutor(BUILDERS) as pool:
        builds: list[Future[Any]] = [
            pool.submit(ahead, problems[one.problem], one.candidate) for one in queue
        ]
        rows = [judged(judge, problems[one.problem], one) for one in queue]
    for build in builds:
        error = build.exception()
        # What does not compile got its verdict above; anything else is the judge's own mistake.
        if error is not None and not isinstance(error, CandidateFailure):
            raise error
    return rows


def show_groups(rows: Sequence[Row], field: str) -> None:
    groups: dict[str, list[float]] = {}
    for row in rows:
        groups.setdefault(str(getattr(row, field)), []).append(row.seconds)
    print(f"\n{field:22}{'count':>6}{'median s':>10}{'longest s':>11}{'sum s':>9}")
    for name, times in sorted(groups.items()):
        middle = statistics.median(times)
        print(f"{name:22}{len(times):6}{middle:10.2f}{max(times):11.2f}{sum(times):9.1f}")


def show(rows: Sequence[Row], wall_s: float, hour: str) -> None:
    print(f"\n{len(rows)} verdicts in {wall_s:.1f} s: {len(rows) / wall_s * 3600:.0f} per {hour}")
    show_groups(rows, "status")
    show_groups(rows, "kind")
    print(f"\nslowest {min(SLOWEST, len(rows))}")
    for row in sorted(rows, key=lambda row: -row.seconds)[:SLOWEST]:
        phases = ", ".join(f"{name} {value:.2f}" for name, value in row.phases_s.items() if value >= 0.01)
        print(f"{row.candidate:36}{row.status:14}{row.seconds:8.2f} s  {phases}")
    odd = [row for row in rows if row.status != row.expected]
    print(f"\n{len(rows) - len(odd)} of {len(rows)} ended as expected")
    for row in odd:
        print(f"{row.candidate:36}{row.status} instead of {row.expected}  {row.message[:200]}")


def cache_with_ladders(cache: Path) -> Path:
    """An empty cache, but for what this machine knows of baselines and of itself."""
    cache.mkdir()
    for name in ("ladders", "ceilings"):
        known = default_cache() / name
        known.mkdir(parents=True, exist_ok=True)
        (cache / name).symlink_to(known)
    return cache


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--device")
    parser.add_argument("--skip-speed", action="store_true", help="right or wrong only")
    parser.add_argument("--problems", nargs="+", choices=tuple(ARGUMENTS), default=list(ARGUMENTS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.count < 1:
        parser.error("--count must be at least 1")
    policy = Policy(speed=not options.skip_speed)
    with (
        tempfile.TemporaryDirectory(prefix="queue-") as folder,
        # Builds start from nothing: a second run must build as much as the first. Baselines are taken over.
        Judge(options.device, policy, cache_with_ladders(Path(folder) / "cache")) as judge,
    ):
        queue = deal(options.count, judge.device.type, options.problems)
        paths = {name: LADDER / f"{name}.py" for name in dict.fromkeys(one.problem for one in queue)}
        if judge.device.type == "cpu":
            paths = {name: shrunk_copy(path, Path(folder)) for name, path in paths.items()}
        problems = {name: load_problem(path) for name, path in paths.items()}
        start = time.monotonic()
        first = [judged(judge, problem, first_of(name)) for name, problem in problems.items()]
        prepared_s = time.monotonic() - start
        print(f"{len(problems)} problems made ready in {prepared_s:.1f} s, not counted below")
        start = time.monotonic()
        rows = run_queue(judge, problems, queue)
        wall_s = time.monotonic() - start
        environment = to_plain(read_environment(judge.device))
    show(rows, wall_s, "GPU-hour" if judge.device.type == "cuda" else "hour on this CPU")
    if options.out:
        record = {
            "environment": environment,
            "prepared_s": round(prepared_s, 3),
            "wall_s": round(wall_s, 3),
            "verdicts_per_hour": round(len(rows) / wall_s * 3600, 1),
            "first": [asdict(row) for row in first],
            "rows": [asdict(row) for row in rows],
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if all(row.status == row.expected for row in [*first, *rows]) else 1


if __name__ == "__main__":
    sys.exit(main())
