"""What compiled code is, whatever it was compiled from: a digest of its instructions, and its inner loops.

Loops are read from a disassembly: a jump backwards closes one, and what no other lies in is an inner one. On
x86-64 and AArch64; elsewhere, and where there is no objdump, nothing is said.

Not covered: integer work, loops that the compiler unrolled away, which of the loops are hot.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MOST_BYTES = 1 << 20
OBJDUMP_TIMEOUT_S = 5.0
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_PROGBITS = 1
_CODE = (".text", ".rodata", ".data", ".nv.constant", ".nv.global.init")
_FUNCTION = re.compile(r"^[0-9a-f]+ <[^>]+>:$")
_INSTRUCTION = re.compile(r"^\s*(?P<at>[0-9a-f]+):\t(?P<word>[a-z][\w.]*)\s*(?P<rest>.*)$")
_JUMP = re.compile(r"^(?:j[a-z]+|b|b\.[a-z]+|cbn?z|tbn?z)$")
_TARGET = re.compile(r"\b(?:0x)?([0-9a-f]+) <")
_X86_FLOAT = re.compile(r"^v?(?:add|sub|mul|div|max|min|sqrt|rcp|rsqrt|fn?m(?:add|sub)\d*)(p|s)[sdh]$")
_ARM_FLOAT = re.compile(r"^f(?:add|sub|mul|div|n?madd|n?msub|ml[as]|max|maxnm|min|minnm|sqrt)$")
_ARM_VECTOR = re.compile(r"\b(?:v\d+\.(?P<lanes>\d+)(?P<kind>[hsd])|z\d+\.[hsd])")
_X86_BITS = {"x": 128, "y": 256, "z": 512}
_LANE_BITS = {"h": 16, "s": 32, "d": 64}


@dataclass(frozen=True, slots=True)
class Loops:
    """Innermost loops with floating-point work."""

    loops: int
    packed_loops: int
    vector_bits: int
    """0 where nothing is packed, or where the width is the machine's choice."""


def code_digest(artefact: bytes) -> str:
    """sha256 of the instructions and constants of an ELF file, or of all of what is none."""
    hashed = hashlib.sha256()
    try:
        for name, content in _sections(artefact):
            if name.startswith(_CODE):
                hashed.update(len(content).to_bytes(8, "big") + content)
    except (struct.error, IndexError, ValueError, OverflowError):
        return hashlib.sha256(artefact).hexdigest()
    return hashed.hexdigest()


def _sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the sections of a little-endian 64-bit ELF file, in order."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise IndexError("no such file")
    header = _HEADER.unpack_from(elf)
    table, count, names_at = header[6], header[12], header[13]
    sections = [_SECTION.unpack_from(elf, table + k * _SECTION.size) for k in range(count)]
    names = elf[sections[names_at][4] :]
    for name_at, kind, _, _, start, size, *_ in sections:
        if kind == _PROGBITS:
            name = names[name_at : names.index(b"\0", name_at)].decode(errors="replace")
            yield name, elf[start : start + size]


def find_loops(path: Path) -> Loops | None:
    """Of a library; None where it is too large, or where nobody can disassemble it."""
    objdump = shutil.which("objdump")
    if objdump is None or not path.is_file() or path.stat().st_size > MOST_BYTES:
        return None
    command = [objdump, "-d", "--no-show-raw-insn", "-j", ".text", str(path)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=OBJDUMP_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return read_loops(done.stdout) if done.returncode == 0 else None


def read_loops(disassembly: str) -> Loops:
    """What objdump -d printed."""
    widths = [_widest(loop) for code in _functions(disassembly) for loop in _inner_loops(code)]
    known = [width for width in widths if width is not None]
    packed = [width for width in known if width != 0]
    return Loops(len(known), len(packed), max([0, *packed]))


@dataclass(frozen=True, slots=True)
class _Instruction:
    at: int
    word: str
    rest: str


def _functions(disassembly: str) -> Iterator[list[_Instruction]]:
    code: list[_Instruction] = []
    for line in disassembly.splitlines():
        if _FUNCTION.match(line):
            yield code
            code = []
        elif found := _INSTRUCTION.match(line):
            code.append(_Instruction(int(found["at"], 16), found["word"], found["rest"]))
    yield code


def _inner_loops(code: Sequence[_Instruction]) -> Iterator[list[_Instruction]]:
    """The instructions of each loop that holds no other."""
    ends: dict[int, int] = {}
    for each in code:
        target = _TARGET.search(each.rest) if _JUMP.match(each.word) else None
        start = int(target[1], 16) if target else each.at + 1
        if code[0].at <= start <= each.at:
            ends[start] = max(each.at, ends.get(start, 0))
    for start, end in ends.items():
        inside = [other for other in ends if other != start and start <= other and ends[other] <= end]
        if not inside:
            yield [each for each in code if start <= each.at <= end]


def _widest(loop: Sequence[_Instruction]) -> int | None:
    """Bits of its widest floating-point work, -1 for a width of the machine's, 0 for single numbers.

    None where there is no such work.
    """
    widths = [width for each in loop if (width := _float_bits(each)) is not None]
    return max(widths, key=abs) if widths else None


def _float_bits(each: _Instruction) -> int | None:
    if found := _X86_FLOAT.match(each.word):
        bits = [_X86_BITS[name] for name in re.findall(r"\b([xyz])mm\d", each.rest.replace("%", ""))]
        return max(bits, default=0) if found[1] == "p" else 0
    if not _ARM_FLOAT.match(each.word):
        return None
    vector = _ARM_VECTOR.search(each.rest)
    if vector is None:
        return 0
    return int(vector["lanes"]) * _LANE_BITS[vector["kind"]] if vector["lanes"] else -1
