"""What a build depends on, as one key: source, flags, compiler versions and, for -march=native, the CPU.

Not covered: the contents of header folders beyond the versions of the tools they came with.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from assay.build.toolchain import Toolchain
from assay.candidates.candidate import Candidate

SCHEMA = 1
EXTENSION_NAME = "candidate_extension"
"""Neutral on purpose: a name such as assay_candidate would tell the code where it runs."""

# -ffast-math is never here: it lets the compiler reorder sums and drop NaN, so the source would no longer say
# what is computed. Fused multiply-add stays allowed, as on the GPU.
CXX_FLAGS = (
    "-O3",
    "-march=native",
    "-fopenmp",
    "-fPIC",
    "-shared",
    "-fmax-errors=5",
    "-fdiagnostics-color=never",
)
CXX_PLAIN_FLAGS = ("-std=c++17",)
# torch 2.13 refuses to be included below C++20; 2.11 accepts it.
TORCH_FLAGS = ("-std=c++20", f"-DTORCH_EXTENSION_NAME={EXTENSION_NAME}", "-DTORCH_API_INCLUDE_EXTENSION_H")
NVRTC_FLAGS = ("--std=c++17", "--generate-line-info", "--ptxas-options=-v")
NVCC_FLAGS = ("-std=c++17", "-O3", "-lineinfo", "-Xptxas=-v")
NVCC_TORCH_FLAGS = (
    "-O3",
    "-lineinfo",
    "--expt-relaxed-constexpr",
    "-shared",
    "-Xcompiler=-fPIC",
    "-Xptxas=-v",
)


def needs_build(candidate: Candidate) -> bool:
    """Python sources are imported as they are; only bare kernels and torch extensions are compiled by us."""
    return candidate.entry in ("launch", "extension")


def build_key(candidate: Candidate, toolchain: Toolchain) -> str:
    """sha256 in hex: equal keys mean the same artefact, or the same error."""
    parts: dict[str, object] = {
        "schema": SCHEMA,
        "source": candidate.digest,
        "suffix": candidate.suffix,
        "entry": candidate.entry,
        "flags": _flags(candidate),
        "cxx": toolchain.cxx_version,
    }
    if candidate.suffix == ".cu":
        parts |= {
            "arch": toolchain.cuda_arch,
            "nvcc": toolchain.nvcc_version,
            "nvrtc": toolchain.nvrtc_version,
            "include": list(toolchain.cuda_include),
        }
    else:
        parts["cpu"] = _cpu()
    if candidate.entry == "extension":
        parts |= {"torch": toolchain.torch_version, "python": toolchain.python_version}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _flags(candidate: Candidate) -> list[str]:
    if candidate.suffix == ".cu":
        return (
            [*NVCC_TORCH_FLAGS, *TORCH_FLAGS]
            if candidate.entry == "extension"
            else [*NVRTC_FLAGS, *NVCC_FLAGS]
        )
    return [*CXX_FLAGS, *(TORCH_FLAGS if candidate.entry == "extension" else CXX_PLAIN_FLAGS)]


def _cpu() -> str:
    """Model and feature flags: -march=native on another CPU is another artefact, maybe an illegal one."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "unknown"
    wanted = ("model name", "flags", "Features", "CPU part")
    lines = [line for line in text.split("\n\n")[0].splitlines() if line.startswith(wanted)]
    return "\n".join(lines)
