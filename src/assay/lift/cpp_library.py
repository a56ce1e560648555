"""The C++ part of a standalone file: one library that is compiled on import, and calls of its functions.

No header of torch is included, so that compiling takes a second or two; the functions are called through
ctypes. Pragmas of a lifted problem that this writer knows: "flags", further options for the compiler.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from assay.lift.cpp_kernels import FAILS
from assay.lift.cpp_support import support_for
from assay.lift.record import CannotLift, Kernel, Launch, Lifted
from assay.records.codec import digest

FLAGS = ("-O3", "-march=native", "-fopenmp", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
"""The last three leave every result as it is: no contraction, no errno, no floating-point signals."""
EXTRA_FLAGS = "flags"

_HEADERS = {
    "algorithm": r"std::(min|max)\b",
    "atomic": r"std::atomic",
    "cmath": r"std::(?!min\b|max\b|vector|atomic|unique_ptr|numeric_limits|is_|make_|common_)",
    "cstdint": r"",
    "limits": r"std::numeric_limits",
    "memory": r"std::unique_ptr",
    "omp.h": r"\bomp_",
    "sys/mman.h": r"\bmadvise\b",
    "type_traits": r"std::(is_|make_|common_)",
    "vector": r"std::vector",
}
_KINDS = {
    "int64_t": "c_int64",
    "int32_t": "c_int32",
    "double": "c_double",
    "float": "c_float",
    "bool": "c_bool",
}


def library_source(lifted: Lifted, name: str) -> str:
    """The lines that define the source, compile it and declare its functions; empty without kernels."""
    if not lifted.kernels:
        return ""
    source = _source(lifted.kernels)
    flags = [*FLAGS, *lifted.pragmas.get(EXTRA_FLAGS, "").split()]
    plain_name = "".join(c if c.isalnum() else "_" for c in name)
    unique = f"{plain_name}_{digest(source, *flags)[:12]}"
    shown = ", ".join(f'"{flag}"' for flag in flags)
    lines = [
        f'SOURCE = r"""\n{source}\n"""\n',
        "LIBRARY = ctypes.CDLL(",
        "    load_inline(",
        f'        name="{unique}",',
        "        cpp_sources=SOURCE,",
        f"        extra_cflags=[{shown}],",
        '        extra_ldflags=["-fopenmp"],',
        "        is_python_module=False,",
        "        no_implicit_headers=True,",
        "    )",
        ")",
        "POINTER, INTEGER = ctypes.c_void_p, ctypes.c_int64",
    ]
    for kernel in lifted.kernels:
        lines += _declared(kernel)
    return "\n".join(lines)


def _source(kernels: Sequence[Kernel]) -> str:
    body = "\n\n".join(kernel.text for kernel in kernels)
    support = support_for([body])
    code = f"{support}\n\n{body}" if support else body
    headers = [f"#include <{name}>" for name, used in _HEADERS.items() if re.search(used, code)]
    if "vcvt_f16_f32" in code:
        headers += ["#if defined(__aarch64__)", "#include <arm_neon.h>", "#endif"]
    return "\n".join(headers) + "\n\n" + code


def _declared(kernel: Kernel) -> Iterator[str]:
    kinds = [_ctype(kind) for kind in kernel.parameters]
    grouped = [(kind, len(list(group))) for kind, group in groupby(kinds)]
    shown = " + ".join(f"[{kind}] * {count}" if count > 1 else f"[{kind}]" for kind, count in grouped)
    function = _handle(kernel.name)
    yield f"{function} = LIBRARY.{kernel.name}"
    yield f"{function}.argtypes = {shown or '[]'}"
    if FAILS not in kernel.facts:
        yield f"{function}.restype = None"


def _ctype(kind: str) -> str:
    plain = kind.replace("const", "").replace("__restrict", "").strip()
    if plain.endswith("*"):
        return "POINTER"
    if plain == "int64_t":
        return "INTEGER"
    if plain not in _KINDS:
        raise CannotLift(f"a kernel's argument of type {plain}")
    return f"ctypes.{_KINDS[plain]}"


def _handle(kernel: str) -> str:
    return f"call_{kernel}"


def call_of(launch: Launch, lifted: Lifted) -> Iterator[str]:
    """The Python that calls a kernel."""
    kernel = next(one for one in lifted.kernels if one.name == launch.kernel)
    arguments = [
        _pointer(argument) if kind.rstrip().endswith(("*", "__restrict")) else argument
        for kind, argument in zip(kernel.parameters, launch.arguments, strict=True)
    ]
    call = f"{_handle(kernel.name)}({', '.join(arguments)})"
    if FAILS not in kernel.facts:
        yield call
        return
    yield f"if {call}:"
    yield '    raise IndexError("an index is out of bounds")'


def _pointer(argument: str) -> str:
    match ast.parse(argument, mode="eval").body:
        case ast.Call(func=ast.Attribute(attr="as_strided"), args=[base, _, _]):
            # A view that begins where its base does.
            return f"{ast.unparse(base)}.data_ptr()"
        case ast.Name():
            return f"{argument}.data_ptr()"
    return f"({argument}).data_ptr()" if " " in argument.split("(")[0] else f"{argument}.data_ptr()"
