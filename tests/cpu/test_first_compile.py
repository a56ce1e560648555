"""Compilers started in the zygote: nothing is left behind, and forking stays safe."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from assay.build import find_toolchain

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


NVRTC_PROGRAM = """
import os
from assay.build import compile_cubin, find_toolchain
from assay.worker.zygote import warm_nvrtc

library = find_toolchain(None).nvrtc
warm_nvrtc()
print(len(os.listdir("/proc/self/task")), flush=True)
if os.fork() == 0:
    source = 'extern "C" __global__ void one(float* x) { *x = 1; }'
    built = compile_cubin(library, source, "one.cu", ["--gpu-architecture=sm_90"])
    print(built.cubin is not None, flush=True)
    os._exit(0)
os.wait()
"""


def test_a_child_compiles_with_the_nvrtc_of_its_parent() -> None:
    if find_toolchain(None).nvrtc is None:
        pytest.skip("no NVRTC on this machine")
    done = subprocess.run([sys.executable, "-c", NVRTC_PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "True"]
