"""Building: compilers found, candidates compiled, results kept, errors said in a few lines."""

from __future__ import annotations

from assay.build.cache import BuildCache, CachedBuild
from assay.build.compiling import Built, compile_candidate
from assay.build.diagnosis import Diagnosis, diagnose, diagnose_exception
from assay.build.keys import EXTENSION_NAME, build_key, needs_build
from assay.build.nvrtc import compile_cubin
from assay.build.shipping import ShippedBuild, keep_build, ship_build
from assay.build.toolchain import Toolchain, find_toolchain, sanitizer_paths

__all__ = [
    "EXTENSION_NAME",
    "BuildCache",
    "Built",
    "CachedBuild",
    "Diagnosis",
    "ShippedBuild",
    "Toolchain",
    "build_key",
    "compile_candidate",
    "compile_cubin",
    "diagnose",
    "diagnose_exception",
    "find_toolchain",
    "keep_build",
    "needs_build",
    "sanitizer_paths",
    "ship_build",
]
