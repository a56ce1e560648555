"""Compiles a tile kernel for Hopper where there is no GPU, and reads what the assembler says of it.

Registers, spills, shared memory, how many tensor core operations there are, whether the assembler had to put
them one after the other ("wgmma serialisation"), which costs half of the speed and is told nowhere else, and
whether threads that share a sum have other bits of it (rounding.py).
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.experimental.gluon._runtime import GluonASTSource

from assay.tiles.hopper import gl

HOPPER = GPUTarget("cuda", 90, 32)
FIRST_REGISTERS = {1: 168, 2: 168, 3: 128}
"""What a thread begins with, by the number of consumers; partitions then give to and take from each other."""
MOST_SHARED_BYTES = 232_448
ALIGNMENT_BYTES = 16
"""Of every pointer, as launches have them."""
_PRODUCT = re.compile(r"\bmul(?:\.\w+)*\.f32\s+(%\w+), (\S+), (\S+);")
_PASSED_ON = re.compile(r"\bshfl\.sync\.\w+\.b32\s+(%\w+)(?:\|%\w+)?, (%\w+),")
_TAKEN_IN = re.compile(r"\bfma\.rn(?:\.\w+)*\.f32\s+%\w+, (\S+), (\S+), (%\w+);")
NAMES = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.float8_e4m3fn: "fp8e4nv",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.int32: "i32",
}
DTYPES = {
    torch.bfloat16: gl.bfloat16,
    torch.float16: gl.float16,
    torch.float32: gl.float32,
    torch.float8_e4m3fn: gl.float8e4nv,
    torch.int32: gl.int32,
}


@dataclass(frozen=True, slots=True)
class Compiled:
    """What the assembler says."""

    registers: int
    spilled_bytes: int
    shared_bytes: int
    products: int
    """Tensor core instructions in the text."""
    is_serialised: bool
    unlike_sums: int = 0

    @property
    def complaints(self) -> list[str]:
        found = []
        if self.spilled_bytes:
            found.append(f"{self.spilled_bytes} bytes of registers are spilled")
        if self.is_serialised:
            found.append("tensor core operations are put one after the other")
        if self.shared_bytes > MOST_SHARED_BYTES:
            found.append(f"{self.shared_bytes} bytes of shared memory are more than a multiprocessor has")
        if self.unlike_sums:
            found.append(f"{self.unlike_sums} sums across threads take in products that are not rounded")
        return found


def block(dtype: torch.dtype, shape: list[int]) -> str:
    """The type of a descriptor for copies of such blocks."""
    return f"tensordesc<{NAMES[dtype]}{shape},{layout_of(dtype, shape)!r}>"


def layout_of(dtype: torch.dtype, shape: list[int]) -> Any:
    return gl.NVMMASharedLayout.get_default_for(shape, DTYPES[dtype])


def pointer(dtype: torch.dtype) -> str:
    return f"*{NAMES[dtype]}"


def compile_for_hopper(kernel: Any, types: Mapping[str, str], constants: Mapping[str, Any]) -> Compiled:
    """Args:
    types: of each argument but the constants, by name and in order.
    """
    names = kernel.arg_names
    signature = {name: types.get(name, "constexpr") for name in names}
    values = {(names.index(name),): value for name, value in constants.items()}
    pointers = [names.index(name) for name, kind in types.items() if kind.startswith("*")]
    aligned = {(place,): [["tt.divisibility", ALIGNMENT_BYTES]] for place in pointers}
    registers = FIRST_REGISTERS[constants["w"].work.consumers]
    source = GluonASTSource(kernel, signature, values, aligned)
    made = triton.compile(source, target=HOPPER, options={"num_warps": 4, "maxnreg": registers})
    text = made.asm["ptx"]
    told = assembled(text)
    return Compiled(
        registers=_number(r"Used (\d+) registers", told),
        spilled_bytes=_number(r"(\d+) bytes spill stores", told) + _number(r"(\d+) bytes spill loads", told),
        shared_bytes=made.metadata.shared,
        products=text.count("wgmma.mma_async"),
        is_serialised="wgmma.mma_async instructions are serialized" in told,
        unlike_sums=unlike_sums(text),
    )


def assembled(text: str) -> str:
    """What ptxas says of it."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(text)
        tool = get_ptxas(90)
        words = [tool.path, "-v", "-arch=sm_90a", str(source), "-o", str(source.with_suffix(".cubin"))]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"ptxas: {done.stderr.strip()}")
    return done.stdout + done.stderr


def unlike_sums(text: str) -> int:
    """Additions, in PTX, of a thread's own product as it is and the rounded one of another thread."""
    products = {made: {a, b} for made, a, b in _PRODUCT.findall(text)}
    passed_on = {made: products.get(of) for made, of in _PASSED_ON.findall(text)}
    return sum(passed_on.get(more) == {a, b} for a, b, more in _TAKEN_IN.findall(text))


def _number(pattern: str, text: str) -> int:
    return max((int(found) for found in re.findall(pattern, text)), default=0)
