"""Times the kernels of `assay.tiles` beside their references, in turns: the device's time alone.

    python benchmarks/tiles.py [--only GLOB] [--out JSON]

Rows are those of `python -m assay.tiles.table`, which judges them; this is what is quick enough to tune by.
Each call comes behind a flush of the L2 cache and a cover under which the host launches. Inputs are random.
What a kernel moves is told as a part of what a copy moves in the same run.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton

from assay.tiles.table_row import Missing, Row
from assay.tiles.table_rows import rows

ROUNDS = 12
FLUSHED_BYTES = 256 * 2**20
COPIED_BYTES = 2**30
COVER_CYCLES = 2_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="*", help="rows whose label matches")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU here")
    told: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "copied_bytes_per_us": (copied := copy_speed()),
        "rows": [],
    }
    print(f"a copy moves {copied / 1e6:.2f} TB/s")
    for row in rows():
        if isinstance(row, Missing) or not fnmatch.fnmatch(row.label, options.only):
            continue
        reference_us, ours_us = times(*calls(row))
        moved = row.cost().size_bytes / ours_us / copied
        found = {"reference_us": reference_us, "ours_us": ours_us, "of_copy": moved}
        told["rows"].append({"label": row.label, "reference": row.reference} | found)
        ratio = f"{reference_us / ours_us:7.3f} of {row.reference}"
        print(f"{row.label:52} {ours_us:10.1f} us {ratio:34} {moved:4.0%} of a copy", flush=True)
        if options.out:
            options.out.write_text(json.dumps(told, indent=1))


def calls(row: Row) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The reference and the kernel, on the same inputs."""
    cost = row.cost()
    scopes: list[dict[str, Any]] = []
    for text in row.texts(cost.size_bytes, cost.flops):
        scope: dict[str, Any] = {"__name__": "row"}
        exec(compile(text, row.label, "exec"), scope)
        scopes.append(scope)
    torch.manual_seed(0)
    with torch.device("cuda"):
        inputs = [x.cuda() for x in scopes[0]["get_inputs"]()]
    reference, ours = scopes[0]["Model"]().cuda(), scopes[1]["ModelNew"]().cuda()
    ours.load_state_dict(reference.state_dict(), strict=False)
    if row.reference.endswith("compiled"):
        reference = torch.compile(reference)
    return lambda: reference(*inputs), lambda: ours(*inputs)


def copy_speed() -> float:
    """Bytes a microsecond, read and written."""
    source = torch.randn(COPIED_BYTES // 4, device="cuda")
    target = torch.empty_like(source)
    (taken,) = times(lambda: target.copy_(source))
    return 2 * COPIED_BYTES / taken


def times(*functions: Callable[[], Any]) -> list[float]:
    """Microseconds of each, medians of rounds in which each has its turn."""
    flushed = torch.empty(FLUSHED_BYTES, dtype=torch.int8, device="cuda")
    for function in functions:
        function(), function()
    events = [[] for _ in functions]
    for _ in range(ROUNDS):
        for function, taken in zip(functions, events, strict=True):
            flushed.random_()
            torch.cuda._sleep(COVER_CYCLES)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            function()
            end.record()
            taken.append((begin, end))
        torch.cuda.synchronize()
    return [1000 * statistics.median(a.elapsed_time(b) for a, b in taken) for taken in events]


if __name__ == "__main__":
    main()
