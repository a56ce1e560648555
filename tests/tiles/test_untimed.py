"""Kernels of benchmarks/ that a GPU has not timed yet: emulated, and compiled for Hopper."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
import torch
from emulated_kernels import mamba2_error

from assay.tiles.emulate import Descriptor, emulate
from assay.tiles.emulated_language import WORDS
from assay.tiles.gate import block, compile_for_hopper, pointer
from assay.tiles.kernels import fp8_gemm as shipped
from assay.tiles.kernels import mamba2_hopper
from assay.tiles.kernels.mamba2_ends import RECORD

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FP8 = torch.float8_e4m3fn
ROUNDED = 4e-3


@contextmanager
def benchmark(name: str) -> Iterator[ModuleType]:
    with mock.patch.object(sys, "path", [str(BENCHMARKS), *sys.path]):
        spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with mock.patch.dict(sys.modules, {name: module}):
            spec.loader.exec_module(module)
            yield module


@pytest.fixture(scope="module")
def wide() -> Iterator[ModuleType]:
    with benchmark("fp8_wide") as module:
        yield module


@pytest.fixture(scope="module")
def weights() -> Iterator[ModuleType]:
    with benchmark("mamba2_weights") as module:
        yield module


@pytest.mark.parametrize(
    ("name", "m", "n", "k"),
    [
        ("tall", 300, 205, 528),
        ("tall, 3 stages", 70, 390, 1040),
        ("wide", 70, 390, 1040),
        ("wide, registers", 300, 205, 528),
    ],
)
def test_fp8_in_larger_tiles(wide: ModuleType, name: str, m: int, n: int, k: int) -> None:
    torch.manual_seed(m)
    a, b, scale_a, scale_b = shipped.inputs(m, n, k, False, "cpu")
    scale_a = scale_a * (1 + torch.rand_like(scale_a))  # so that no two are alike
    wanted = shipped.reference(a, b, scale_a, scale_b).float()
    c = torch.full((m, n), math.nan).bfloat16()
    blocks = Descriptor(a, [64, 128]), Descriptor(b, [128, 128]), Descriptor(c, [64, 128])
    scales = (scale_a, *scale_a.stride(), scale_b, *scale_b.stride())
    work = wide.VARIANTS[name].constant
    with mock.patch.dict(WORDS, {"scaled_sum": lambda product, scale, acc: product * scale + acc}):
        emulate(wide.fp8_wide_kernel, (2,), *blocks, m, n, k, *scales, work, seed=k)
    assert float((c.float() - wanted).norm() / wanted.norm()) < ROUNDED


def test_larger_tiles_do_not_spill(wide: ModuleType) -> None:
    types = {name: block(dtype, [rows, 128]) for name, dtype, rows in (("a", FP8, 64), ("b", FP8, 128))}
    types |= {"c": block(torch.bfloat16, [64, 128])} | dict.fromkeys(("M", "N", "K"), "i32")
    for side in "ab":
        types |= {f"scale_{side}": pointer(torch.float32), f"{side}_row": "i32", f"{side}_step": "i32"}
    made = compile_for_hopper(wide.fp8_wide_kernel, types, {"w": wide.VARIANTS["tall"].constant})
    assert made.complaints == [] and made.products > 0


@pytest.mark.parametrize(
    ("length", "heads", "seed", "how"),
    [
        (40, 3, 0, {"has_d": False}),
        (300, 2, 1, {"strength": 1e8, "has_rests": True}),
        (450, 2, 2, {"processors": 4, "dtype": torch.float16}),
        (450, 2, 0, {"processors": 1}),
    ],
)
def test_mamba2_with_later_weights(
    weights: ModuleType, length: int, heads: int, seed: int, how: dict
) -> None:
    with mock.patch.object(mamba2_hopper, "Outputs", weights.Later):
        assert mamba2_error(mamba2_hopper, 1, length, heads, 1, seed, **how) < ROUNDED


def test_later_weights_are_compiled_without_waits(weights: ModuleType) -> None:
    types = {name: block(torch.bfloat16, [1, 64, 64]) for name in "xy"}
    types |= {name: block(torch.bfloat16, [1, 64, 128]) for name in "bc"}
    types |= dict.fromkeys(("tiles", "T", "heads", "shared", "last", "chunks"), "i32")
    types |= dict.fromkeys(("ends", "decays", "d"), pointer(torch.float32))
    types["rows"] = block(torch.float32, [RECORD])
    kernel = mamba2_hopper.outputs_kernel
    given = {name: types[name] for name in kernel.arg_names if name in types}
    made = compile_for_hopper(kernel, given, {"w": weights.Later().constant})
    assert not made.is_serialised and made.spilled_bytes < 400
