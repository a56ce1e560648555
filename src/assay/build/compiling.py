"""Compiles one candidate into one artefact in its own folder. Runs inside the confined child.

Plain CUDA goes through NVRTC into a cubin (nvcc where NVRTC is absent or cannot take the source), plain C++
through g++ into a shared library, sources with torch headers through nvcc or g++ into a Python extension.
The compilers are called directly: torch.utils.cpp_extension.load keeps a lock file that outlives a killed
builder (pytorch #189245), and compiles twice what one command does once.

Not covered: time limits (the judge kills the child), several source files, extra libraries to link.
"""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

from assay.build import keys
from assay.build.diagnosis import diagnose, has_compile_error
from assay.build.nvrtc import RUNTIME_ONLY, compile_cubin
from assay.build.toolchain import Toolchain
from assay.candidates.candidate import Candidate
from assay.records.errors import CandidateFailure, JudgeFault, UserError

MAX_LOG_CHARACTERS = 20_000
_KILLED = (
    "Killed signal terminated",
    "out of memory",
    "virtual memory exhausted",
    "std::bad_alloc",
    "died due to signal",
)
# The command line is ours: what a compiler says about it is never the candidate's failure.
_OUR_MISTAKE = re.compile(r"^nvcc fatal|unrecognized command-line option|cannot find -l", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Built:
    """An artefact on disk."""

    path: str
    kind: str
    """"cubin", "shared" or "extension"."""
    seconds: float
    log: str
    """What the compiler said: warnings, and registers, spills and shared memory for CUDA."""


def compile_candidate(candidate: Candidate, toolchain: Toolchain, folder: Path) -> Built:
    """Builds into `folder`, one per build; CandidateFailure("build_failed") if it does not compile."""
    if not keys.needs_build(candidate):
        raise JudgeFault(
            f"{candidate.name}: a {candidate.entry} candidate is not compiled ahead of its import"
        )
    folder.mkdir(parents=True, exist_ok=True)
    source_path = folder / f"candidate{candidate.suffix}"
    source_path.write_text(candidate.source, encoding="utf-8")
    start = time.perf_counter()
    if candidate.entry == "extension":
        path, kind, log = _build_extension(candidate, toolchain, folder)
    elif candidate.suffix == ".cu":
        path, kind, log = _build_cubin(candidate, toolchain, folder)
    else:
        path, kind, log = _build_shared(candidate, toolchain, folder)
    seconds = time.perf_counter() - start
    return Built(str(path), kind, seconds, log[:MAX_LOG_CHARACTERS])


def _build_cubin(candidate: Candidate, toolchain: Toolchain, folder: Path) -> tuple[Path, str, str]:
    arch = _arch(toolchain)
    path = folder / "candidate.cubin"
    includes = [f"-I{place}" for place in toolchain.cuda_include]
    if toolchain.nvrtc is not None:
        options = [f"--gpu-architecture={arch}", *keys.NVRTC_FLAGS, *includes]
        result = compile_cubin(toolchain.nvrtc, candidate.source, "candidate.cu", options)
        if result.cubin is not None:
            path.write_bytes(result.cubin)
            return path, "cubin", result.log
        if toolchain.nvcc is None or not RUNTIME_ONLY.search(result.log):
            raise _compile_failure("nvrtc", result.log, candidate)
    nvcc = _tool(
        toolchain.nvcc, "CUDA candidates need NVRTC or nvcc: install nvidia-cuda-nvrtc or the CUDA toolkit"
    )
    command = [nvcc, *keys.NVCC_FLAGS, f"-arch={arch}", "-cubin", *includes, "candidate.cu", "-o", path.name]
    return path, "cubin", _run("nvcc", command, candidate, toolchain, folder)


def _build_shared(candidate: Candidate, toolchain: Toolchain, folder: Path) -> tuple[Path, str, str]:
    cxx = _tool(toolchain.cxx, "C++ candidates need a compiler: install g++")
    path = folder / "candidate.so"
    command = [cxx, *keys.CXX_FLAGS, *keys.CXX_PLAIN_FLAGS, "candidate.cpp", "-o", path.name]
    return path, "shared", _run("g++", command, candidate, toolchain, folder)


def _build_extension(candidate: Candidate, toolchain: Toolchain, folder: Path) -> tuple[Path, str, str]:
    if "PYBIND11_MODULE" not in candidate.source:
        # Found before a minute of compiling, which would end in a library that cannot be imported.
        raise CandidateFailure(
            "build_failed",
            "no_binding",
            "the source includes torch headers but binds nothing: add "
            'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }',
        )
    is_cuda = candidate.suffix == ".cu"
    path = folder / f"{keys.EXTENSION_NAME}.so"
    includes, links = _torch_flags(is_cuda)
    if is_cuda:
        nvcc = _tool(toolchain.nvcc, "CUDA sources with torch headers need nvcc: install the CUDA toolkit")
        command = [nvcc, *keys.NVCC_TORCH_FLAGS, f"-arch={_arch(toolchain)}", *keys.TORCH_FLAGS]
        command += _system_includes([*includes, *toolchain.cuda_include])
    else:
        cxx = _tool(toolchain.cxx, "C++ candidates need a compiler: install g++")
        command = [cxx, *keys.CXX_FLAGS, *keys.TORCH_FLAGS, *_system_includes(includes)]
    command += [f"candidate{candidate.suffix}", "-o", path.name, *links]
    return path, "extension", _run("nvcc" if is_cuda else "g++", command, candidate, toolchain, folder)


def _system_includes(places: list[str]) -> list[str]:
    # Two words each: nvcc does not know the joined form.
    return [word for place in places for word in ("-isystem", place)]


def _torch_flags(is_cuda: bool) -> tuple[list[str], list[str]]:
    from torch.utils import cpp_extension

    includes = [*cpp_extension.include_paths("cpu"), sysconfig.get_paths()["include"]]
    folders = cpp_extension.library_paths("cpu")
    libraries = ["c10", "torch_cpu", "torch", "torch_python"]
    if is_cuda and Path(folders[0], "libtorch_cuda.so").exists():
        libraries += ["c10_cuda", "torch_cuda"]
    return includes, [*(f"-L{folder}" for folder in folders), *(f"-l{library}" for library in libraries)]


def _run(tool: str, command: list[str], candidate: Candidate, toolchain: Toolchain, folder: Path) -> str:
    # LC_ALL: diagnoses are read by pattern, in English. TMPDIR: the confined child may write only here.
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(folder.resolve())}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise JudgeFault(f"{command[0]} could not be started: {error}") from error
    if done.returncode == 0:
        return done.stdout
    if done.returncode < 0 or any(sign in done.stdout for sign in _KILLED):
        message = f"{tool} was killed while compiling (memory or time limit)"
        raise CandidateFailure("build_failed", "compiler_killed", message, done.stdout[-500:])
    if _OUR_MISTAKE.search(done.stdout) and not has_compile_error(done.stdout):
        raise JudgeFault(f"{tool} refused its command: {done.stdout[:500]}")
    raise _compile_failure(tool, done.stdout, candidate)


def _compile_failure(tool: str, log: str, candidate: Candidate) -> CandidateFailure:
    found = diagnose(tool, log, candidate.source)
    return CandidateFailure("build_failed", "compile_error", found.summary, found.render())


def _arch(toolchain: Toolchain) -> str:
    if toolchain.cuda_arch is None:
        raise UserError(
            "no CUDA architecture to build for: this machine has no GPU, so name one, such as sm_90"
        )
    return toolchain.cuda_arch


def _tool(path: str | None, fix: str) -> str:
    if path is None:
        raise UserError(fix)
    return path
