"""A kernel of no use, compiled in the zygote: what Triton's compiler does once, no child has to do again.

Needs no GPU and touches none.
"""

from __future__ import annotations

import os
import tempfile

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

_CACHE_VARIABLE = "TRITON_CACHE_DIR"


@triton.jit
def _softmax(x, y, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=float("-inf"))
    grown = tl.exp(value - tl.max(value, 0))
    tl.store(y + at, grown / tl.sum(grown, 0), mask=at < n)


def compile_once() -> None:
    """Into a folder that goes away: what a cache holds is not compiled."""
    before = os.environ.get(_CACHE_VARIABLE)
    signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    with tempfile.TemporaryDirectory() as folder:
        os.environ[_CACHE_VARIABLE] = folder
        try:
            source = ASTSource(_softmax, signature, constexprs={"BLOCK": 256})
            triton.compile(source, target=GPUTarget("cuda", 90, 32))
        finally:
            del os.environ[_CACHE_VARIABLE]
            if before is not None:
                os.environ[_CACHE_VARIABLE] = before
