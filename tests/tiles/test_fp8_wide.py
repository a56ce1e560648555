"""The fp8 product in larger tiles that waits to be timed (benchmarks/fp8_wide.py): emulated and compiled."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
import torch

from assay.tiles.emulate import Descriptor, emulate
from assay.tiles.emulated_language import WORDS
from assay.tiles.gate import block, compile_for_hopper, pointer
from assay.tiles.kernels import fp8_gemm as shipped

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FP8 = torch.float8_e4m3fn
ROUNDED = 4e-3


@pytest.fixture(scope="module")
def wide() -> Iterator[ModuleType]:
    with mock.patch.object(sys, "path", [str(BENCHMARKS), *sys.path]):
        spec = importlib.util.spec_from_file_location("fp8_wide", BENCHMARKS / "fp8_wide.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with mock.patch.dict(sys.modules, {"fp8_wide": module}):
            spec.loader.exec_module(module)
            yield module


@pytest.mark.parametrize("name", ["tall", "tall, 3 stages", "wide", "wide, registers"])
@pytest.mark.parametrize(("m", "n", "k"), [(300, 205, 528), (70, 390, 1040)])
def test_is_right(wide: ModuleType, name: str, m: int, n: int, k: int) -> None:
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


def test_nothing_spills(wide: ModuleType) -> None:
    types = {name: block(dtype, [rows, 128]) for name, dtype, rows in (("a", FP8, 64), ("b", FP8, 128))}
    types |= {"c": block(torch.bfloat16, [64, 128])} | dict.fromkeys(("M", "N", "K"), "i32")
    for side in "ab":
        types |= {f"scale_{side}": pointer(torch.float32), f"{side}_row": "i32", f"{side}_step": "i32"}
    made = compile_for_hopper(wide.fp8_wide_kernel, types, {"w": wide.VARIANTS["tall"].constant})
    assert made.complaints == [] and made.products > 0
