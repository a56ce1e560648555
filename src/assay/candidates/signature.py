"""Reads the C signature of a bare kernel, so that Python values reach it as the right C types.

`extern "C" __global__ void norm(const float* __restrict__ x, float* y, int n, float eps)` becomes four
parameters, two of them pointers. Simple `using`, `typedef` and `#define` aliases are followed.

Not covered: templates, structs by value, references, pointers to pointers, half-precision scalars by value,
signatures made by macros. Each is refused with the fix in the message, never guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from assay.records.errors import CandidateFailure

SCALARS: dict[str, str] = {
    "bool": "bool",
    "char": "int8",
    "signed char": "int8",
    "int8_t": "int8",
    "unsigned char": "uint8",
    "uint8_t": "uint8",
    "short": "int16",
    "short int": "int16",
    "int16_t": "int16",
    "unsigned short": "uint16",
    "uint16_t": "uint16",
    "int": "int32",
    "signed": "int32",
    "signed int": "int32",
    "int32_t": "int32",
    "unsigned": "uint32",
    "unsigned int": "uint32",
    "uint": "uint32",
    "uint32_t": "uint32",
    "long": "int64",
    "long int": "int64",
    "long long": "int64",
    "long long int": "int64",
    "int64_t": "int64",
    "ptrdiff_t": "int64",
    "unsigned long": "uint64",
    "unsigned long long": "uint64",
    "unsigned long int": "uint64",
    "unsigned long long int": "uint64",
    "uint64_t": "uint64",
    "size_t": "uint64",
    "float": "float32",
    "double": "float64",
}
"""C type -> what a Python number is converted to. LP64: the only ABI CUDA has on Linux."""

POINTEES: dict[str, tuple[str, ...]] = {
    "float32": ("float32",),
    "float64": ("float64",),
    "int8": ("int8",),
    "uint8": ("uint8", "bool", "int8"),
    "int16": ("int16",),
    # Unsigned words are how kernels name raw bits: half formats and signed data of the same width are let in.
    "uint16": ("uint16", "int16", "float16", "bfloat16"),
    "int32": ("int32",),
    "uint32": ("uint32", "int32"),
    "int64": ("int64",),
    "uint64": ("uint64", "int64"),
    "bool": ("bool", "uint8"),
}
VECTORS: dict[str, tuple[str, ...]] = {
    "half": ("float16",),
    "__half": ("float16",),
    "half2": ("float16",),
    "__half2": ("float16",),
    "nv_bfloat16": ("bfloat16",),
    "__nv_bfloat16": ("bfloat16",),
    "nv_bfloat162": ("bfloat16",),
    "__nv_bfloat162": ("bfloat16",),
    "__nv_fp8_e4m3": ("float8_e4m3fn",),
    "__nv_fp8_e5m2": ("float8_e5m2",),
    "float2": ("float32", "complex64"),
    "float4": ("float32",),
    "double2": ("float64", "complex128"),
    "int2": ("int32",),
    "int4": ("int32",),
}

_NOISE = re.compile(
    r"\b(?:const|volatile|__restrict__|__restrict|restrict|__grid_constant__|struct|register)\b"
)
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TYPE_WORDS = frozenset(word for name in SCALARS for word in name.split())


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel."""

    name: str
    c_type: str
    """The type as written, without qualifiers and without the star."""
    is_pointer: bool
    scalar: str = ""
    """For scalars: the canonical name in SCALARS ("int32")."""
    dtypes: tuple[str, ...] = ()
    """For pointers: torch dtypes that may be handed over; empty means unchecked (void*, unknown types)."""

    def describe(self) -> str:
        return f"{self.c_type}{'*' if self.is_pointer else ''} {self.name}"


def parse_signature(source: str, kernel: str, *, is_cuda: bool) -> tuple[Parameter, ...]:
    """The parameters of `kernel`; CandidateFailure("build_failed") where they cannot be read."""
    text = _COMMENTS.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), source)
    aliases = _aliases(text)
    wanted = f'extern "C" {"__global__ " if is_cuda else ""}void {kernel}(...)'
    found = _find_definition(text, kernel, is_cuda)
    if found is None:
        raise _failure("no_kernel", f"the source defines no {wanted}, which a directive names")
    prefix, inside, position = found
    if "template" in prefix:
        raise _failure("template_kernel", f"{kernel} is a template: add a wrapper declared as {wanted}")
    if not re.search(r'extern\s+"C"', prefix) and not _in_extern_block(text, position):
        raise _failure("not_extern_c", f"{kernel} has a mangled name: declare it as {wanted}")
    return tuple(_parameter(kernel, index, piece, aliases) for index, piece in enumerate(_split(inside)))


def _find_definition(text: str, kernel: str, is_cuda: bool) -> tuple[str, str, int] | None:
    for match in re.finditer(rf"\b{re.escape(kernel)}\s*\(", text):
        close = _closing(text, match.end() - 1, "()")
        if close is None or text[close + 1 :].lstrip()[:1] not in ("{", ";"):
            continue
        start = max(text.rfind(mark, 0, match.start()) for mark in ";{}")
        prefix = text[start + 1 : match.start()]
        prefix = "\n".join(line for line in prefix.split("\n") if not line.lstrip().startswith("#"))
        if "__global__" in prefix if is_cuda else re.search(r"\b\w+\s+\**\s*$", prefix):
            return prefix, text[match.end() : close], match.start()
    return None


def _closing(text: str, opening: int, pair: str) -> int | None:
    depth = 0
    for index in range(opening, len(text)):
        if text[index] == pair[0]:
            depth += 1
        elif text[index] == pair[1]:
            depth -= 1
            if depth == 0:
                return index
    return None


def _in_extern_block(text: str, position: int) -> bool:
    for match in re.finditer(r'extern\s+"C"\s*\{', text):
        close = _closing(text, match.end() - 1, "{}")
        if match.end() <= position < (len(text) if close is None else close):
            return True
    return False


def _aliases(text: str) -> dict[str, str]:
    found = dict(re.findall(r"\busing\s+(\w+)\s*=\s*([\w: ]+?)\s*;", text))
    found |= {name: c_type for c_type, name in re.findall(r"\btypedef\s+([\w: ]+?)\s+(\w+)\s*;", text)}
    found |= dict(
        re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([A-Za-z_][\w ]*?)[ \t]*$", text, re.MULTILINE)
    )
    return found


def _split(inside: str) -> list[str]:
    pieces, depth, current = [], 0, ""
    for char in inside:
        if char == "," and depth == 0:
            pieces.append(current)
            current = ""
            continue
        depth += (char in "(<[") - (char in ")>]")
        current += char
    pieces.append(current)
    pieces = [" ".join(piece.split()) for piece in pieces]
    return [] if pieces in ([""], ["void"]) else pieces


def _parameter(kernel: str, index: int, piece: str, aliases: dict[str, str]) -> Parameter:
    declared = _NOISE.sub(" ", piece.split("=")[0])
    if "&" in declared or declared.count("*") + declared.count("[") > 1:
        raise _failure(
            "bad_parameter", f"{kernel}: `{piece}` is no plain pointer or number: pass a pointer or a value"
        )
    is_pointer = "*" in declared or "[" in declared
    words = (
        re.sub(r"\[.*?\]|\*", " * " if "[" not in declared else " ", declared).replace("std::", "").split()
    )
    name = words.pop() if len(words) > 1 and words[-1] not in _TYPE_WORDS | {"*"} else f"argument {index}"
    c_type = " ".join(word for word in words if word != "*")
    for _ in range(8):  # aliases of aliases, but never in a circle
        if c_type not in aliases:
            break
        c_type = aliases[c_type].removeprefix("std::")
    scalar = SCALARS.get(c_type, "")
    if is_pointer:
        dtypes = POINTEES[scalar] if scalar else VECTORS.get(c_type, ())
        return Parameter(name, c_type, True, dtypes=dtypes)
    if not scalar:
        raise _failure(
            "bad_parameter",
            f"{kernel}: `{piece}` cannot be passed by value; numbers are int, unsigned, long long, int64_t, "
            "size_t, float, double or bool",
        )
    return Parameter(name, c_type, False, scalar=scalar)


def _failure(code: str, message: str) -> CandidateFailure:
    return CandidateFailure("build_failed", code, message)
