"""The words that tile kernels are written in: with direct.py, the only file that knows which Triton this is.

Written for Triton 3.6; 3.9 has renamed the copy to global memory. Not there: clusters and multicast, named
barriers, tiles whose sides are no powers of two.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

jit = gluon.jit

__all__ = [
    "TensorDescriptor",
    "fence_async_shared",
    "gl",
    "jit",
    "mbarrier",
    "mma_v2",
    "tma",
    "warpgroup_mma",
    "warpgroup_mma_wait",
]
