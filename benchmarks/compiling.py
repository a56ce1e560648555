"""Baselines of many problems compiled at once, each by a judge of its own, before anything is timed.

    python benchmarks/compiling.py PROBLEM [--device cuda]

Compiling ahead of time takes a minute on one core. Rungs that tune themselves by measuring are left alone:
they would measure each other.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

RUNGS = ("aot-inductor",)


def compile_at_once(problems: Sequence[Path], device: str | None, jobs: int) -> None:
    """One process per problem, so many at a time; the ladder tries again what failed, and tells."""
    command = [sys.executable, __file__, *(["--device", device] if device else [])]
    with ThreadPoolExecutor(jobs) as threads:
        for path, code in zip(
            problems, threads.map(lambda p: subprocess.call([*command, str(p)]), problems), strict=True
        ):
            if code:
                print(f"{path.stem}: compiling ahead ended with {code}", flush=True)


def main() -> int:
    from assay.judge import Judge
    from assay.problems import load_problem

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("problem", type=Path)
    parser.add_argument("--device")
    options = parser.parse_args()
    with Judge(options.device) as judge:
        judge.compile_baselines(load_problem(options.problem), RUNGS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
