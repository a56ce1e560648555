"""Copies of problem files at sizes that a CPU can judge: the same file with smaller module-level constants.

The judge itself shrinks a problem only where it does not fit into memory. A benchmark that is merely tried
out on a CPU wants every problem small. Not covered: constants that share a line with others.
"""

from __future__ import annotations

import re
from pathlib import Path

from assay.problems import load_problem, reduced_nominal
from assay.records import UserError

CPU_INPUT_BYTES = 1 << 20


def shrunk_copy(problem: Path, folder: Path, limit_bytes: int = CPU_INPUT_BYTES) -> Path:
    """A copy of the problem file under its own name in `folder`, with inputs of at most `limit_bytes`."""
    case = reduced_nominal(load_problem(problem), limit_bytes)
    if case is None:
        raise UserError(f"{problem} cannot be made smaller: name its sizes as module-level constants")
    text = problem.read_text(encoding="utf-8")
    for name, value in case.sizes.items():
        text, count = re.subn(rf"^{name} = .*$", f"{name} = {value!r}", text, flags=re.MULTILINE)
        if count != 1:
            raise UserError(f"{problem} sets {name} {count} times: give it one line of its own")
    copy = folder / problem.name
    copy.write_text(text, encoding="utf-8")
    return copy
