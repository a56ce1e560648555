"""CUDA source to cubin in this process, through libnvrtc by ctypes: 0.05 s where nvcc takes seconds.

NVRTC has no host headers, so the handful that kernels include out of habit (<stdint.h>, <math.h>, <cfloat>,
<stdio.h>) is supplied here in a device-only form.

Not covered: host code in the source, and headers NVRTC cannot read: `RUNTIME_ONLY` marks those errors, and
the caller turns to nvcc.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.records.errors import JudgeFault

RUNTIME_ONLY = re.compile(
    r"cannot open source file|could not open source file|host functions? (?:is|are) not allowed|"
    r"not allowed in JIT mode|default-device"
)
"""Errors that a source may have under NVRTC and not under nvcc."""

# Types and macros are spelled exactly as in libcu++'s NVRTC branch: a kernel may include both, and only equal
# definitions may be repeated.
_LIMITS = """#pragma once
#define CHAR_BIT 8
#define SCHAR_MIN (-128)
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define SHRT_MIN (-SHRT_MAX - 1)
#define SHRT_MAX 0x7fff
#define USHRT_MAX 0xffff
#define INT_MIN (-INT_MAX - 1)
#define INT_MAX 0x7fffffff
#define UINT_MAX 0xffffffff
#define LLONG_MIN (-LLONG_MAX - 1)
#define LLONG_MAX 0x7fffffffffffffffLL
#define ULLONG_MAX 0xffffffffffffffffUL
"""
_INTEGERS = """#pragma once
#include <climits>
using int8_t = signed char;
using int16_t = signed short;
using int32_t = signed int;
using int64_t = signed long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
using intptr_t = int64_t;
using uintptr_t = uint64_t;
#define INT8_MIN SCHAR_MIN
#define INT16_MIN SHRT_MIN
#define INT32_MIN INT_MIN
#define INT64_MIN LLONG_MIN
#define INT8_MAX SCHAR_MAX
#define INT16_MAX SHRT_MAX
#define INT32_MAX INT_MAX
#define INT64_MAX LLONG_MAX
#define UINT8_MAX UCHAR_MAX
#define UINT16_MAX USHRT_MAX
#define UINT32_MAX UINT_MAX
#define UINT64_MAX ULLONG_MAX
namespace std { using ::int8_t; using ::uint8_t; using ::int16_t; using ::uint16_t; using ::int32_t;
using ::uint32_t; using ::int64_t; using ::uint64_t; using ::size_t; }
"""
_FLOATS = """#pragma once
#ifndef FLT_MAX
#define FLT_MAX 3.402823466e+38F
#define FLT_MIN 1.175494351e-38F
#define FLT_EPSILON 1.192092896e-07F
#define DBL_MAX 1.7976931348623158e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_EPSILON 2.2204460492503131e-16
#endif
"""
_MATH = """#pragma once
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#ifndef M_PI
#define M_PI 3.14159265358979323846
#define M_SQRT1_2 0.70710678118654752440
#define M_2_SQRTPI 1.12837916709551257390
#define M_LOG2E 1.4426950408889634074
#define M_SQRT2 1.41421356237309504880
#endif
"""
HEADERS: dict[str, str] = {
    **dict.fromkeys(("stdint.h", "cstdint", "inttypes.h", "stddef.h", "cstddef"), _INTEGERS),
    **dict.fromkeys(("limits.h", "climits"), _LIMITS),
    **dict.fromkeys(("float.h", "cfloat"), _FLOATS),
    **dict.fromkeys(("math.h", "cmath"), _MATH),
    # printf and assert are built in; the rest of these headers has no meaning on the device.
    **dict.fromkeys(("stdio.h", "cstdio", "stdlib.h", "cstdlib", "assert.h", "cassert"), "#pragma once\n"),
}


@dataclass(frozen=True, slots=True)
class NvrtcResult:
    """The cubin, or None with the reason in the log."""

    cubin: bytes | None
    log: str


def compile_cubin(library: str, source: str, name: str, options: Sequence[str]) -> NvrtcResult:
    """Compiles one source; a compile error is a result, anything else of NVRTC's a JudgeFault."""
    nvrtc = _load(library)
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
    program = ctypes.c_void_p()
    names = (ctypes.c_char_p * len(HEADERS))(*(key.encode() for key in HEADERS))
    texts = (ctypes.c_char_p * len(HEADERS))(*(value.encode() for value in HEADERS.values()))
    created = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), name.encode(), len(HEADERS), texts, names
    )
    _check(nvrtc, created, "nvrtcCreateProgram")
    try:
        flags = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = nvrtc.nvrtcCompileProgram(program, len(options), flags)
        log = _fetch(nvrtc, program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if status == _ERROR_COMPILATION:
            return NvrtcResult(None, log)
        _check(nvrtc, status, f"nvrtcCompileProgram {' '.join(options)}: {log[:500]}")
        return NvrtcResult(_fetch(nvrtc, program, "CUBIN"), log)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


_ERROR_COMPILATION = 6


def _load(library: str) -> ctypes.CDLL:
    # NVRTC opens its builtins by bare name: outside the loader's path they must have been loaded before.
    for builtins in sorted(Path(library).parent.glob("libnvrtc-builtins.so*")):
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(library)


def _fetch(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), f"nvrtcGet{what}Size")
    buffer = ctypes.create_string_buffer(max(size.value, 1))
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, buffer), f"nvrtcGet{what}")
    return buffer.raw[: size.value]


def _check(nvrtc: ctypes.CDLL, status: int, call: str) -> None:
    if status != 0:
        raise JudgeFault(f"NVRTC: {nvrtc.nvrtcGetErrorString(status).decode()} in {call}")
