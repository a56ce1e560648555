"""The baseline ladder of every problem under benchmarks/ladder: what a candidate has to beat.

    python benchmarks/ladders.py [NAME ...] [--device cuda] [--jobs 8] [--out FOLDER]

One record per problem goes to FOLDER/NAME.json, environment included. "percent" is the speed of light: the
floor that bytes and operations set on this device over the rung's time. A problem that cannot be measured is
reported, and the others go on.

Not covered: candidates; that is full_verdict.py. On a CPU the problems are made small.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from compiling import compile_at_once
from shrinking import shrunk_copy

from assay.judge import Judge
from assay.problems import load_problem
from assay.records import AssayError, to_json, to_plain

LADDER = Path(__file__).parent / "ladder"


def show(ladder: dict[str, Any]) -> None:
    """One line per rung; absent ones say why."""
    floor_us = ladder["roofline"]["floor_us"] if ladder["roofline"] else None
    for rung in ladder["rungs"]:
        name = f"{ladder['problem']:20}{rung['name']:28}"
        time_us = rung["device_us"]
        if time_us is None:
            print(f"{name}absent: {rung['absent'][:80]}")
            continue
        percent = "" if floor_us is None else f"{100 * floor_us / time_us['middle']:.1f}"
        best = "  <- opponent" if rung["name"] == ladder["opponent"] else ""
        interval = f"{time_us['low']:.2f} .. {time_us['high']:.2f}"
        print(f"{name}{time_us['middle']:12.2f}{interval:>24}{percent:>9}{best}")


def main() -> int:
    names = sorted(path.stem for path in LADDER.glob("*.py"))
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("problems", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; default all")
    parser.add_argument("--device")
    parser.add_argument("--jobs", type=int, default=0, help="compile ahead, so many problems at once")
    parser.add_argument("--out", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    for name in options.problems:
        if name not in names:
            parser.error(f"no problem {name}: use {', '.join(names)}")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    if options.jobs:
        paths = [LADDER / f"{name}.py" for name in options.problems or names]
        compile_at_once(paths, options.device, options.jobs)
    failed = 0
    print(f"{'problem':20}{'rung':28}{'device us':>12}{'95 % interval':>24}{'percent':>9}")
    with Judge(options.device) as judge, tempfile.TemporaryDirectory(prefix="small-") as folder:
        for name in options.problems or names:
            start = time.monotonic()
            path = LADDER / f"{name}.py"
            try:
                if judge.device.type == "cpu":
                    path = shrunk_copy(path, Path(folder))
                ladder = judge.bench(load_problem(path))
            except AssayError as error:
                failed += 1
                print(f"{name:20}no ladder: {error}", flush=True)
                continue
            if options.out:
                (options.out / f"{name}.json").write_text(to_json(ladder, indent=1) + "\n")
            show(to_plain(ladder))
            print(f"{name:20}measured in {time.monotonic() - start:.1f} s", flush=True)
    if failed:
        print(f"{failed} without a ladder")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
