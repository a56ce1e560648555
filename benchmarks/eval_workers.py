"""How much faster two workers judge than one: `assay eval` over 100 problems of the suite on a CPU.

    python benchmarks/eval_workers.py [--count 100] [--out FILE.json]

The first problems of level 1 as candidates for themselves, right or wrong alone, inputs of 0.06 MiB. Both
runs start cold and pay for their own calibration; torch has one thread in every worker.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from as_written import as_written

from assay.problems import load_problem, problem_paths

SUITE = Path(__file__).parents[1] / "suite" / "level1"


def write(folder: Path, count: int) -> None:
    (folder / "suite").mkdir()
    (folder / "candidates").mkdir()
    for path in problem_paths(SUITE)[:count]:
        source = load_problem(path).specification().source
        (folder / "suite" / path.name).write_text(source, encoding="utf-8")
        (folder / "candidates" / path.name).write_text(as_written(source), encoding="utf-8")


def seconds(folder: Path, jobs: int) -> float:
    words = ("eval", folder / "suite", "--candidates", folder / "candidates", "--no-speed", "--device", "cpu")
    run = ("--small", 0.06, "--jobs", jobs, "--run", folder / f"{jobs}.sqlite")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ASSAY_CACHE": str(folder / f"cache-{jobs}")}
    command = [sys.executable, "-m", "assay.cli.main", *map(str, (*words, *run))]
    start = time.monotonic()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), options.count)
        one, two = seconds(Path(name), 1), seconds(Path(name), 2)
    told = {
        "candidates": options.count,
        "cores": os.cpu_count(),
        "one_worker_s": round(one, 1),
        "two_workers_s": round(two, 1),
        "times_as_fast": round(one / two, 2),
    }
    print(json.dumps(told, indent=1))
    if options.out:
        options.out.write_text(json.dumps(told, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
