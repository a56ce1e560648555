"""Finds the compilers of this machine and their versions: for building, cache keys and `assay doctor`.

Nothing here fails when a tool is absent: the field is None, and whoever needs the tool says so.

Not covered: whether the tools work (a build tells), Windows, ROCm.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assay.records.errors import UserError

# Architectures whose newest instructions (wgmma, TMA multicast, tcgen05) exist only under the "a" name.
_ACCELERATED = frozenset({"90", "100", "101", "103", "110", "120", "121"})
_ASK_TIMEOUT_S = 20
_SANITIZER = "compute-sanitizer"


@dataclass(frozen=True, slots=True)
class Toolchain:
    """What this machine builds with; None where a tool is absent."""

    cxx: str | None
    cxx_version: str | None
    nvcc: str | None
    nvcc_version: str | None
    nvrtc: str | None
    nvrtc_version: str | None
    cuda_include: tuple[str, ...]
    """Folders with cuda_fp16.h and its like: the toolkit's, else those of the nvidia packages."""
    cuda_arch: str | None
    """"sm_90a": the one architecture built for, or None on a machine without a GPU."""
    torch_version: str | None
    python_version: str
    sanitizer: str | None = None
    """compute-sanitizer. It builds nothing, so no build depends on it."""


def find_toolchain(cuda_arch: str | None) -> Toolchain:
    """Looks for everything anew (about 0.1 s); `cuda_arch` may be "sm_90", "sm_90a", "90" or "9.0"."""
    arch = normal_arch(cuda_arch) if cuda_arch is not None else None
    cxx = shutil.which(os.environ.get("CXX") or "g++") or shutil.which("g++") or shutil.which("c++")
    home = _cuda_home()
    nvcc = (_existing(home / "bin" / "nvcc") if home else None) or shutil.which("nvcc")
    nvrtc = next(_nvrtc_libraries(home), None)
    return Toolchain(
        cxx=cxx,
        cxx_version=_first_line(cxx) if cxx else None,
        nvcc=nvcc,
        nvcc_version=_nvcc_version(nvcc) if nvcc else None,
        nvrtc=nvrtc[0] if nvrtc else None,
        nvrtc_version=nvrtc[1] if nvrtc else None,
        cuda_include=_cuda_include(home),
        cuda_arch=arch,
        torch_version=_torch_version(),
        python_version=platform.python_version(),
        sanitizer=_sanitizer(home),
    )


def normal_arch(text: str) -> str:
    """ "9.0", "90", "sm_90" and "sm_90a" all become "sm_90a"; a suffix that was given is kept."""
    match = re.fullmatch(r"(?:sm_|compute_)?(\d{1,2})\.?(\d)([af]?)", text.strip())
    if match is None:
        raise UserError(f"{text!r} is not a CUDA architecture: write it as sm_90 or 9.0")
    number = match[1] + match[2]
    return f"sm_{number}{match[3] or ('a' if number in _ACCELERATED else '')}"


def _cuda_home() -> Path | None:
    on_path = shutil.which("nvcc")
    places = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    places += [str(Path(on_path).resolve().parent.parent)] if on_path else []
    for place in [*places, "/usr/local/cuda"]:
        # A wrapper script called nvcc may lie anywhere: only a folder with the headers is a toolkit.
        if place and Path(place, "include", "cuda_runtime.h").is_file():
            return Path(place)
    return None


def _nvidia_packages() -> Iterator[Path]:
    """Folders such as site-packages/nvidia/cu13; `nvidia` is a namespace package, so in any path."""
    for entry in sys.path:
        root = Path(entry or ".", "nvidia")
        if root.is_dir():
            yield from sorted(child for child in root.iterdir() if child.is_dir())


def _nvrtc_libraries(home: Path | None) -> Iterator[tuple[str, str]]:
    """Libraries that load and say their version; torch's own package first, since torch runs beside it."""
    folders = [package / "lib" for package in _nvidia_packages()]
    if home:
        folders += [home / "lib64", home / "lib"]
    files = [str(f) for folder in folders for f in sorted(folder.glob("libnvrtc.so*"), reverse=True)]
    files = [f for f in files if ".alt." not in f]
    installed = ctypes.util.find_library("nvrtc")
    for path in [*files, *([installed] if installed else [])]:
        version = _nvrtc_version(path)
        if version:
            yield path, version


def _nvrtc_version(path: str) -> str | None:
    major, minor = ctypes.c_int(), ctypes.c_int()
    try:
        if ctypes.CDLL(path).nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) != 0:
            return None
    except (OSError, AttributeError):
        return None
    # The patch level is only in the file's real name (libnvrtc.so.13.0.88), where there is a toolkit.
    patch = re.search(r"\.so\.(\d+\.\d+\.\d+)$", os.path.realpath(path))
    return patch[1] if patch else f"{major.value}.{minor.value}"


def _cuda_include(home: Path | None) -> tuple[str, ...]:
    roots = [home / "include"] if home else []
    roots += [package / "include" for package in _nvidia_packages()]
    found = [root for root in roots if (root / "cuda_fp16.h").is_file()]
    # CUDA 13 moved libcu++ and CUB one folder down: <cub/cub.cuh> and <cuda/std/...> are there.
    return tuple(str(f) for root in found[:1] for f in (root, root / "cccl") if f.is_dir())


def _sanitizer(home: Path | None) -> str | None:
    """Of several the newest, since earlier ones take more of what is right for an error; the program itself
    before the script in bin that starts it."""
    roots = [*([home] if home else []), *_nvidia_packages()]
    found: list[str] = []
    for root in roots:
        program = _existing(root / _SANITIZER / _SANITIZER) or _existing(root / "bin" / _SANITIZER)
        found += [program] if program else []
    if len(found) > 1:
        found.sort(key=_sanitizer_version, reverse=True)
    return found[0] if found else shutil.which(_SANITIZER)


def _sanitizer_version(path: str) -> list[int]:
    match = re.search(r"\d+(?:\.\d+)+", _ask([path, "--version"]))
    return [int(part) for part in match[0].split(".")] if match else []


def sanitizer_paths(path: str) -> tuple[str, ...]:
    """What has to be readable for compute-sanitizer to run: its folder, or the script and its program's."""
    needed = set()
    for place in (path, os.path.realpath(path)):
        folder, top = os.path.dirname(place), os.path.dirname(os.path.dirname(place))
        # Its neighbours in a bin folder are other tools.
        needed |= {place if os.path.basename(folder) == "bin" else folder, os.path.join(top, _SANITIZER)}
    return tuple(sorted(place for place in needed if os.path.exists(place)))


def _first_line(tool: str) -> str | None:
    lines = _ask([tool, "--version"]).splitlines()
    return lines[0].strip() if lines else None


def _nvcc_version(nvcc: str) -> str | None:
    match = re.search(r"\bV(\d+\.\d+\.\d+)", _ask([nvcc, "--version"]))
    return match[1] if match else None


def _ask(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _torch_version() -> str | None:
    # Importing torch takes seconds, and its package metadata may leave out the "+cu130" builds depend on.
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    match = re.search(r"""^__version__ = ['"](.+?)['"]""", text, re.MULTILINE)
    return match[1] if match else None


def _existing(path: Path) -> str | None:
    return str(path) if path.is_file() else None
