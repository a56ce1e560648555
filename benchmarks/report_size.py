"""How long a report over 1,000 recorded verdicts takes, and how large it is.

    python benchmarks/report_size.py RUN.sqlite [--count 1000] [--out FILE.json]

The verdicts of RUN, repeated as further samples until there are enough, each with a source of its own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from assay.archive import Archive
from assay.report import gather
from assay.report.page import page


def repeat(earlier: Path, path: Path, count: int) -> None:
    with Archive(earlier) as known, Archive(path, create=True) as archive:
        for name, value in known.facts().items():
            archive.set_fact(name, value)
        for problem in known.problems():
            archive.add_problem(problem)
        judged = [one for one in known.judged() if one.verdict() is not None]
        most = 1 + max(one.candidate.sample for one in judged)
        for k, one in zip(range(count), itertools.cycle(judged), strict=False):
            sample = one.candidate.sample + most * (k // len(judged))
            source = f"{one.candidate.source}\n# {k}\n"
            number = archive.add(replace(one.candidate, sample=sample, source=source, parent=None))
            verdict = one.verdict()
            assert verdict is not None
            archive.keep_verdict(number, verdict, one.worker, one.seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "many.sqlite")
        repeat(options.run, path, options.count)
        start = time.monotonic()
        with Archive(path) as archive:
            text = page([gather(archive)])
        seconds = time.monotonic() - start
    told = {
        "verdicts": options.count,
        "seconds": round(seconds, 2),
        "mib": round(len(text.encode()) / 2**20, 2),
    }
    print(json.dumps(told, indent=1))
    if options.out:
        options.out.write_text(json.dumps(told, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
