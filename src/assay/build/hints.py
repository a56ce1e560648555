"""What to do about common build errors, as data: patterns with a hint each, the first match wins.

Not covered: anything specific to one problem; hints are about the tools.
"""

from __future__ import annotations

import difflib
import re
import sys


def _unknown(names: str, header: str) -> tuple[str, str]:
    """The name itself is unknown; merely being mentioned (a wrong conversion of half) is another error."""
    told = (
        r"(?:is undefined|was not declared|does not name|has not been declared|must be a class or namespace)"
    )
    return rf"[\"'](?:{names})[\"'] {told}|name followed by \"::\" must.*(?:{names})", f"include <{header}>"


COMPILER_HINTS: tuple[tuple[str, str], ...] = (
    _unknown(r"(?:__)?half2?", "cuda_fp16.h"),
    _unknown(r"(?:__)?nv_bfloat162?", "cuda_bf16.h"),
    _unknown(r"nvcuda|wmma", "mma.h"),
    _unknown(r"FLT_MAX|FLT_MIN|FLT_EPSILON|DBL_MAX", "cfloat"),
    _unknown(r"INFINITY|NAN|M_PI", "math.h"),
    _unknown(r"u?int\d+_t", "stdint.h"),
    (r"DeprecatedTypeProperties", "AT_DISPATCH takes x.scalar_type(), not x.type()"),
    (
        r"uses too much shared data",
        "use dynamic shared memory (extern __shared__, third value of <<<>>>) or smaller tiles",
    ),
    (
        r"not supported on \.target|requires \.target|Not a name of any known instruction",
        "the instruction does not exist on this architecture, or is misspelled",
    ),
    (
        r"cannot open source file|No such file or directory",
        "only the CUDA toolkit, libcu++/CUB and torch's own headers are there; CUTLASS and the like are not",
    ),
    (
        r"host functions? (?:is|are) not allowed|not allowed in JIT mode",
        "remove host code: the directives launch the kernel; helper functions need __device__",
    ),
    (r"has no member named|has no member", "check the API: this member does not exist in this version"),
    (
        r"no suitable con(?:version|structor)|cannot be used to initialize|cannot convert|invalid conversion",
        "convert explicitly (static_cast, __half2float, __float2half)",
    ),
    (
        r"more than one (?:operator|instance)|no operator|no match for .operator",
        "convert both operands to one type first (__half2float for half)",
    ),
    (r"expected [\"']|expected an? ", "syntax: look at this line and the one before it"),
    (
        r"is undefined|was not declared|not declared in this scope",
        "declare it, include its header, or correct the name",
    ),
    (
        r"undefined reference|undefined symbol",
        "defined nowhere in this one source file: define it or drop the call",
    ),
    (
        r"static assertion failed|static_assert",
        "a static_assert of the source or a header refuses these types",
    ),
)

PYTHON_HINTS: tuple[tuple[str, str], ...] = (
    (
        r"arange's range must be a power of 2|arange's arguments must be of type tl\.constexpr",
        "tl.arange takes constexpr bounds with a power-of-2 length: pad with triton.next_power_of_2 and mask",
    ),
    (
        r"Cannot access global variable",
        "pass it as a tl.constexpr parameter, or make the global a tl.constexpr",
    ),
    (r"out of resource: shared memory", "smaller block sizes or fewer num_stages"),
    (r"unsupported AST node|Unsupported", "this Python construct does not exist inside @triton.jit"),
    (
        r"Ninja is required|No module named 'ninja'",
        "this machine has no ninja for load_inline: write the kernel as a .cu file",
    ),
    (
        r"CUDA_HOME environment variable is not set",
        "this machine has no CUDA toolkit for load_inline: write the kernel as a .cu file",
    ),
    (
        r"No module named|cannot import name",
        "only torch, triton, numpy, assay.tiles and the problem's own support files can be imported",
    ),
    (
        r"invalid syntax|was never closed|unterminated|unexpected indent|expected an indented block|unindent",
        "syntax: look at this line and the one before it",
    ),
    (r"is not defined", "define or import the name before it is used"),
    (
        r"missing \d+ required|unexpected keyword argument|positional arguments? but",
        "the signature must be that of the specification",
    ),
)

# Names models invent for triton.language, with what does the job. None of them exists in triton 3.6.
TRITON_SUBSTITUTES: dict[str, str] = {
    "tanh": "triton.language.extra.libdevice.tanh, or 2 * tl.sigmoid(2 * x) - 1",
    "relu": "tl.maximum(x, 0)",
    "gelu": "0.5 * x * (1 + tl.erf(x * 0.7071067811865476))",
    "silu": "x * tl.sigmoid(x)",
    "mean": "tl.sum(x, axis) / n",
    "var": "tl.sum of squared differences / n",
    "std": "tl.sqrt of tl.sum of squared differences / n",
    "pow": "triton.language.extra.libdevice.pow, or tl.exp2(y * tl.log2(x))",
    "matmul": "tl.dot",
    "amax": "tl.max",
    "amin": "tl.min",
    "isnan": "x != x",
    "isinf": "tl.abs(x) == float('inf')",
    "inf": "float('inf')",
    "square": "x * x",
    "clip": "tl.clamp or tl.minimum/tl.maximum",
    "round": "triton.language.extra.libdevice.rint",
    "concat": "tl.cat or tl.join",
    "concatenate": "tl.cat or tl.join",
    "full_like": "tl.full(x.shape, value, x.dtype)",
    "mod": "the % operator",
    "syncthreads": "tl.debug_barrier",
    "any": "tl.max of the condition as an integer",
    "all": "tl.min of the condition as an integer",
    "float": "tl.float32",
}


def first_hint(text: str, hints: tuple[tuple[str, str], ...]) -> str:
    return next((hint for pattern, hint in hints if re.search(pattern, text)), "")


def missing_attribute(module: str, name: str) -> tuple[str, str]:
    """Summary and hint for an attribute that a module does not have: a function the author made up."""
    hint = ""
    if module in ("triton.language", "triton.language.core", "triton.language.math"):
        hint = TRITON_SUBSTITUTES.get(name, "")
    close: list[str] = []
    if not hint and module in sys.modules:  # never imported for a hint: it could take seconds
        public = [n for n in dir(sys.modules[module]) if not n.startswith("_")]
        close = difflib.get_close_matches(name, public, n=1, cutoff=0.6)
    if close:
        hint = f"did you mean {close[0]}"
    elif hint:
        hint = f"use {hint}"
    else:
        hint = "look the function up; it does not exist in this version"
    question = f"; did you mean {close[0]}" if close else ""
    return f"hallucinated API: {module} has no {name}{question}", hint
