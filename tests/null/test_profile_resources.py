"""What compiled code takes: compilers' logs, disassemblies, Triton's caches, launches, occupancy."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.candidates.candidate import Candidate
from assay.judge.occupancy import SmLimits, occupancy, sm_limits
from assay.judge.resources import describe, read_ptxas_log
from assay.records import KernelResources, to_plain
from assay.worker.device_activity import (
    KERNEL,
    NAME_OFFSET,
    REGISTERS_OFFSET,
    SIZES_OFFSET,
    START_OFFSET,
    KernelLaunch,
    read_launch,
)
from assay.worker.object_code import Loops, code_digest, find_loops, read_loops
from assay.worker.resources import Spent, Told, TritonKernel, decode_told, tell

CPU = torch.device("cpu")
HOPPER = SmLimits(32, 2048, 32, 65536, 233472, 1024, 132)
ADA = SmLimits(32, 1536, 24, 65536, 102400, 1024, 128)

# --- the assembler's log -----------------------------------------------------------------------------------

PTXAS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z3addILi3EEvPf' for 'sm_90a'
ptxas info    : Function properties for _Z3addILi3EEvPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
ptxas info    : Compile time = 13.286 ms
ptxas info    : Function properties for _Z6helperPf
    64 bytes stack frame, 32 bytes spill stores, 32 bytes spill loads
ptxas info    : Compiling entry function 'scale' for 'sm_90a'
ptxas info    : Function properties for scale
    256 bytes stack frame, 40 bytes spill stores, 44 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 256 bytes cumulative stack size, 1024 bytes smem
"""


def test_the_log_of_ptxas() -> None:
    add, scale = read_ptxas_log(PTXAS, "d")
    assert (add.name, add.registers, add.spill_bytes, add.shared_bytes) == ("void add<3>(float*)", 8, 0, 0)
    assert (scale.name, scale.registers, scale.spill_bytes, scale.local_bytes) == ("scale", 255, 84, 256)
    assert scale.shared_bytes == 1024 and scale.digest == add.digest == "d"


def test_older_words_of_ptxas() -> None:
    text = "ptxas info    : Compiling entry function 'k' for 'sm_80'\n"
    text += "ptxas info    : Used 40 registers, 48+16 bytes smem\n"
    (kernel,) = read_ptxas_log(text)
    assert (kernel.registers, kernel.shared_bytes, kernel.spill_bytes) == (40, 48, None)


@pytest.mark.parametrize("text", ["", "nonsense", "ptxas info    : Used 3 registers", PTXAS[:90], "\0"])
def test_a_log_without_a_whole_entry_says_nothing(text: str) -> None:
    assert read_ptxas_log(text) == []


# --- occupancy ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threads", "registers", "shared_bytes", "limits", "blocks", "share", "limited_by"),
    [
        (256, 32, 0, HOPPER, 8, 1.0, ""),
        (1024, 32, 0, HOPPER, 2, 1.0, ""),
        (256, 128, 0, HOPPER, 2, 0.25, "registers"),
        (256, 255, 0, HOPPER, 1, 0.125, "registers"),
        (128, 33, 0, HOPPER, 12, 0.75, "registers"),
        (256, 32, 100_000, HOPPER, 2, 0.25, "shared memory"),
        (256, 32, 227 * 1024, HOPPER, 1, 0.125, "shared memory"),
        (32, 16, 0, HOPPER, 32, 0.5, "blocks"),
        (1024, 32, 0, ADA, 1, 2 / 3, "block size"),
        (33, 16, 0, HOPPER, 32, 1.0, ""),
        (1024, 255, 0, HOPPER, 0, 0.0, "registers"),
    ],
)
def test_what_a_multiprocessor_holds(
    threads: int,
    registers: int,
    shared_bytes: int,
    limits: SmLimits,
    blocks: int,
    share: float,
    limited_by: str,
) -> None:
    found = occupancy(threads, registers, shared_bytes, limits)
    assert (found.blocks, found.limited_by) == (blocks, limited_by)
    assert found.share == pytest.approx(share)


def test_a_cpu_has_no_multiprocessors() -> None:
    assert sm_limits(CPU) is None


# --- the driver's records ----------------------------------------------------------------------------------


def test_a_launch_as_it_lies_in_memory() -> None:
    name = ctypes.create_string_buffer(b"_Z5scalePfi")
    memory = ctypes.create_string_buffer(256)
    address = ctypes.addressof(memory)
    ctypes.c_uint32.from_address(address).value = KERNEL
    ctypes.c_uint16.from_address(address + REGISTERS_OFFSET).value = 40
    (ctypes.c_uint64 * 2).from_address(address + START_OFFSET)[:] = [1000, 3500]
    (ctypes.c_int32 * 9).from_address(address + SIZES_OFFSET)[:] = [10, 2, 3, 64, 2, 1, 512, 256, 16]
    ctypes.c_uint64.from_address(address + NAME_OFFSET).value = ctypes.addressof(name)
    assert read_launch(address) == KernelLaunch("scale(float*, int)", 2.5, 40, 128, 60, 512, 256, 16)


# --- object code -------------------------------------------------------------------------------------------

SOURCE = """
extern "C" void chain(const float* x, float* y, long n) {
  float s = 0; for (long i = 0; i < n; ++i) { s = s * 0.5f + x[i]; y[i] = s; } }
"""
VECTOR = """
extern "C" void plain(const float* __restrict x, float* __restrict y, long n) {
  // a comment
  for (long i = 0; i < n; ++i) y[i] = x[i] * 2.0f + 1.0f; }
"""
needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None or shutil.which("objdump") is None, reason="needs g++ and objdump"
)


def built(source: str, folder: Path, name: str = "candidate_extension.so") -> Path:
    (folder / "candidate.cpp").write_text(source)
    command = ["g++", "-O3", "-shared", "-fPIC", "candidate.cpp", "-o", name]
    subprocess.run(command, cwd=folder, check=True)
    return folder / name


@needs_compiler
def test_loops_of_what_a_compiler_made(tmp_path: Path) -> None:
    scalar = find_loops(built(SOURCE, tmp_path))
    assert scalar is not None and (scalar.loops, scalar.packed_loops, scalar.vector_bits) == (1, 0, 0)
    packed = find_loops(built(VECTOR, tmp_path))
    assert packed is not None and packed.packed_loops >= 1 and packed.vector_bits >= 128


@needs_compiler
def test_comments_and_names_do_not_change_the_digest_and_code_does(tmp_path: Path) -> None:
    first = code_digest(built(VECTOR, tmp_path).read_bytes())
    renamed = VECTOR.replace("a comment", "another\n// one").replace(" x", " a").replace("x[i]", "a[i]")
    assert code_digest(built(renamed, tmp_path).read_bytes()) == first
    assert code_digest(built(VECTOR.replace("1.0f", "3.0f"), tmp_path).read_bytes()) != first


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 100, b"text"])
def test_what_is_no_elf_file_still_has_a_digest(data: bytes) -> None:
    assert len(code_digest(data)) == 64 and code_digest(data) != code_digest(data + b"x")


X86 = """
0000000000001100 <f>:
    1100:\txor    %eax,%eax
    1108:\tvmovups (%rdi,%rax,1),%ymm1
    110d:\tvfmadd213ps %ymm2,%ymm3,%ymm1
    1112:\tvmovups %ymm1,(%rsi,%rax,1)
    1117:\tadd    $0x20,%rax
    111b:\tcmp    %rdx,%rax
    111e:\tjne    1108 <f+0x8>
    1120:\tvmulss (%rdi,%rcx,4),%xmm3,%xmm0
    1125:\tvaddss %xmm2,%xmm0,%xmm0
    1129:\tinc    %rcx
    112c:\tcmp    %r8,%rcx
    112f:\tjb     1120 <f+0x20>
    1131:\tmov    (%rdi),%eax
    1133:\tinc    %rdi
    1136:\tjne    1131 <f+0x31>
    1138:\tjmp    1100 <f>
    113a:\tret
"""


def test_loops_of_x86() -> None:
    """Of three inner loops one works on vectors, one on single numbers, one on no numbers at all."""
    assert read_loops(X86) == Loops(2, 1, 256)


def test_nothing_is_found_where_there_is_nothing(tmp_path: Path) -> None:
    assert read_loops("") == Loops(0, 0, 0)
    assert find_loops(tmp_path / "absent.so") is None
    (tmp_path / "text.so").write_text("no library")
    assert find_loops(tmp_path / "text.so") is None


# --- what a child tells ------------------------------------------------------------------------------------

LAUNCH = KernelLaunch("mine", 5.0, 40, 128, 1024, 0, 2048, 0)


def test_the_answer_is_read_back(tmp_path: Path) -> None:
    spent = Spent(
        1.5, [LAUNCH, replace(LAUNCH, time_us=9.0, blocks=7), replace(LAUNCH, name="x\n" + "y" * 300)]
    )
    told = decode_told(tell(spent, tmp_path, ""))
    assert told.busy_threads == 1.5 and told.threads_there == torch.get_num_threads()
    assert [launch.blocks for launch in told.launches] == [7, 1024], "of each kernel the longest"
    assert told.launches[1].name == "x?" + "y" * 118 and told.loops is None


@pytest.mark.parametrize(
    "change",
    [
        {"launches": None},
        {"launches": [{"name": "k"}]},
        {"launches": [{**to_plain(LAUNCH), "registers": "many"}]},
        {"launches": [{**to_plain(LAUNCH), "name": "\x1b[31m"}]},
        {"triton": "all"},
        {"loops": {"loops": 1}},
        {"loops": 3},
    ],
)
def test_a_forged_answer_is_no_answer_and_no_failure(tmp_path: Path, change: dict[str, Any]) -> None:
    assert decode_told({**tell(Spent(), tmp_path, ""), **change}) == Told()


@pytest.mark.parametrize("busy", [-1.0, 1e300, "2", True, None])
def test_odd_counts_of_threads_are_left_out(tmp_path: Path, busy: Any) -> None:
    plain = {**tell(Spent(), tmp_path, ""), "busy_threads": busy, "threads_there": busy}
    assert decode_told(plain) == Told()


def test_threads_that_share_the_work_are_counted() -> None:
    spent = Spent()
    spent.measure(lambda: sum(range(1000)))
    assert spent.busy_threads is None or 1.0 <= spent.busy_threads < 2.0


def test_triton_s_caches_are_found_through_autotuners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget

    from assay.worker.first_compile import _softmax

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = triton.compiler.ASTSource(_softmax, signature, constexprs={"BLOCK": 256})
    kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8})
    kernel.n_regs, kernel.n_spills = 24, 2  # known once it is loaded on a device
    monkeypatch.setattr(
        _softmax, "device_caches", {0: ({"key": kernel}, {}, None, None, None)}, raising=False
    )
    candidate: Any = types.ModuleType("candidate")
    candidate.__file__ = str(tmp_path / "candidate.py")
    candidate.tuned = types.SimpleNamespace(fn=_softmax)
    candidate.endless = type("Endless", (), {"__getattr__": lambda self, name: self})()
    monkeypatch.setitem(sys.modules, "candidate", candidate)
    (told,) = decode_told(tell(Spent(), tmp_path, "")).triton
    shared_bytes = kernel.metadata.shared
    assert told == TritonKernel("_softmax", code_digest(kernel.asm["cubin"]), 256, shared_bytes, 24, 8)
    assert decode_told(tell(Spent(), tmp_path / "elsewhere", "")).triton == ()


# --- put together ------------------------------------------------------------------------------------------


def candidate(source: str, suffix: str = ".cu", entry: str = "launch", language: str = "cuda") -> Candidate:
    return Candidate("c", source, suffix, language, entry, digest="d")


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    monkeypatch.setattr("assay.judge.resources.sm_limits", lambda _device: HOPPER)
    return torch.device("cuda")


def test_log_and_launch_meet_by_name(hopper: torch.device) -> None:
    launches = (
        KernelLaunch("scale", 50.0, 255, 256, 264, 1024, 99_000, 256),
        KernelLaunch("void at::native::fill(float*)", 5.0, 16, 128, 1, 0, 0, 0),
        KernelLaunch("extra", 1.0, 16, 32, 1, 0, 0, 0),
    )
    found = {k.name: k for k in describe(candidate(""), b"cubin", PTXAS, Told(launches), hopper)}
    assert list(found) == ["scale", "extra", "void add<3>(float*)"], "what was launched comes first"
    scale = found["scale"]
    assert (scale.source, scale.spill_bytes, scale.threads, scale.blocks) == ("ptxas", 84, 256, 264)
    assert (scale.occupancy, scale.limited_by, scale.waves) == (0.125, "registers", 2.0)
    assert found["extra"].source == "launch" and found["void add<3>(float*)"].occupancy is None
    assert scale.digest == code_digest(b"cubin")


def test_the_variant_that_was_launched_is_the_one_that_is_told_of(hopper: torch.device) -> None:
    compiled = tuple(TritonKernel("k", f"d{warps}", 32 * warps, 512, 40, 4 * warps) for warps in (4, 8, 16))
    launch = KernelLaunch("k", 5.0, 40, 256, 10, 0, 512, 0)
    one = candidate("", ".py", "ModelNew", "triton")
    (found,) = describe(one, b"", "", Told((launch,), compiled), hopper)
    assert (found.source, found.digest, found.spill_bytes, found.threads) == ("triton", "d8", 32, 256)


def test_a_library_kernel_that_triton_compiled_here_is_its_own(hopper: torch.device) -> None:
    name = "triton_poi_fused_add_0"
    launch = KernelLaunch(name, 5.0, 40, 128, 10, 0, 0, 0)
    one = candidate("", ".py", "ModelNew", "triton")
    assert describe(one, b"", "", Told((launch,)), hopper) == ()
    told = Told((launch,), (TritonKernel(name, "d", 128, 0),))
    assert [k.digest for k in describe(one, b"", "", told, hopper)] == ["d"]


def test_a_cpu_has_loops_and_threads() -> None:
    source = "// assay: out y = x\n// assay: call f(x, y)\n// assay: return y\n"
    told = Told(loops=Loops(3, 2, 256), busy_threads=1.5, threads_there=4)
    (found,) = describe(candidate(source, ".cpp", language="cpp"), b"code", "", told, CPU)
    assert (found.name, found.source, found.digest) == ("f", "object", code_digest(b"code"))
    assert (found.loops, found.packed_loops, found.vector_bits) == (3, 2, 256)
    assert (found.busy_threads, found.threads_there) == (1.5, 4)
    plain = candidate("", ".py", "ModelNew", "torch")
    assert describe(plain, b"", "", told, CPU)[0].source == "process"
    assert describe(plain, b"", "", Told(), CPU) == ()
    assert describe(candidate("", ".py", "ModelNew", "triton"), b"", "", told, CPU) == ()


def test_directives_that_cannot_be_read_are_no_reason_to_fail() -> None:
    (found,) = describe(candidate("// assay: nonsense", ".cpp"), b"code", "", Told(), CPU)
    assert isinstance(found, KernelResources) and found.name == "c"
