"""Triton's compiler started in the zygote: nothing is left behind, and forking stays safe."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os
from assay.worker.first_compile import compile_once

os.environ["TRITON_CACHE_DIR"] = "/nowhere"
compile_once()
print(os.environ["TRITON_CACHE_DIR"], len(os.listdir("/proc/self/task")))
"""


def test_the_compiler_has_run_and_left_no_thread_behind() -> None:
    pytest.importorskip("triton")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["/nowhere", "1"]
