"""A test file run as a program, with Triton's kernels interpreted: settled when they are imported."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from typing import Any

from assay.worker.interpreted import mend

if os.environ.get("TRITON_INTERPRET") == "1":
    mend()


@functools.cache
def interpreted(file: str) -> Any:
    """What the file prints last when it is run."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", file],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
