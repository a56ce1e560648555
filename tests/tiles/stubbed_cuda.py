"""Triton's own launches where there is no GPU: a driver that notes down what would be launched.

Triton compiles for Hopper, generates and builds its launchers, and calls them; only the library they call
is another (cuda_stub.c), and tensors are on the CPU.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver

STREAM = 7
SIZES = {"i1": 1, "u1": 1, "i32": 4, "fp32": 4, "i64": 8}
HAS_COMPILER = shutil.which("gcc") is not None


def build(folder: Path) -> dict[str, str]:
    """The environment to run in."""
    here = Path(__file__).parent
    words = ["gcc", "-shared", "-fPIC", f"-I{driver.include_dirs[0]}", str(here / "cuda_stub.c")]
    subprocess.run([*words, "-Wl,-soname,libcuda.so.1", "-o", str(folder / "libcuda.so.1")], check=True)
    return {
        **os.environ,
        "TRITON_LIBCUDA_PATH": str(folder),
        "LD_LIBRARY_PATH": str(folder),
        "TRITON_CACHE_DIR": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join([*sys.path, str(here)]),
    }


class Driver:
    """What Triton asks of the driver, and a note of the last launch."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
        self._library.stub_note.restype = ctypes.c_void_p
        self.utils = driver.CudaUtils()
        self.launcher_cls = driver.CudaLauncher
        self.stream = STREAM
        triton.runtime.driver.set_active(self)
        torch._C._cuda_getDevice = lambda: -1  # where tensors of the CPU are
        torch._C._cuda_getCurrentRawStream = lambda index: self.stream

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return self.stream

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def expect(self, compiled: Any | None) -> None:
        """The sizes of its arguments, which a driver cannot see; with None, nothing is noted."""
        sizes = [] if compiled is None else [*_sizes(compiled.src.signature.values()), 8, 8]
        self._library.stub_expect(len(sizes), (ctypes.c_int * len(sizes))(*sizes))

    def note(self) -> bytes:
        """Grid, shared memory, stream, threads and all arguments."""
        return ctypes.string_at(self._library.stub_note(), 6 * 8 + 8192)


def _sizes(signature: Any) -> list[int]:
    sizes = []
    for kind in signature:
        if isinstance(kind, tuple):
            sizes += _sizes(kind)
        elif kind.startswith("tensordesc"):
            rank = kind[: kind.index("]")].count(",") + 1
            sizes += [128, *[4] * rank, *[8] * rank]
        elif kind != "constexpr":
            sizes.append(8 if kind.startswith("*") else SIZES[kind])
    return sizes
