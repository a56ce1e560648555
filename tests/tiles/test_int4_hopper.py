"""The product with a 4-bit matrix on Hopper: emulated, with bugs, and compiled."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
import torch
from seeded import Bug

from assay.tiles.emulate import Descriptor, EmulationError, emulate
from assay.tiles.gate import block, compile_for_hopper, pointer
from assay.tiles.kernels import int4_gemm as int4
from assay.tiles.kernels import int4_hopper as hopper

ROUNDED = 4e-3
SEEDS = range(3)
FILE = "kernels/int4_hopper"


def error(module: ModuleType, m: int, n: int, groups: int, has_zeros: bool, dtype, seed: int, **how) -> float:
    """By how much Y is off."""
    torch.manual_seed(seed)
    x, packed, scales, *rest = int4.inputs(m, n, 128 * groups, 128, has_zeros, "cpu", dtype)
    wanted = int4.reference(x, packed, scales, *rest).float()
    work = module.Int4Gemm(stages=3, has_zeros=has_zeros, **how)
    y, zeros = torch.full((m, n), math.nan).to(dtype), (*rest, packed)[0]
    blocks = [Descriptor(packed.view(torch.int32), [64, 16]), Descriptor(x, [work.BM, 128])]
    sizes = m, n, groups, scales, scales.stride(0), zeros, zeros.stride(0)
    emulate(
        module.int4_gemm_kernel, (2,), *blocks, Descriptor(y, [work.BM, 64]), *sizes, work.constant, seed=seed
    )
    return float((y.float() - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("m", "n", "groups", "has_zeros", "dtype", "how"),
    [
        (1, 50, 8, False, torch.bfloat16, {"BM": 16, "consumers": 1}),
        (20, 200, 9, True, torch.float16, {"BM": 32, "consumers": 1}),
        (100, 333, 3, True, torch.bfloat16, {"BM": 64, "consumers": 2}),
        (300, 150, 5, False, torch.float16, {"BM": 128, "consumers": 2, "blocks": 1}),
    ],
)
def test_product(m: int, n: int, groups: int, has_zeros: bool, dtype, how: dict, seed: int) -> None:
    assert error(hopper, m, n, groups, has_zeros, dtype, seed, **how) < ROUNDED


BUGS = (
    Bug("bytes in another order", FILE, "shift = 8 * gl.arange", "shift = 24 - 8 * gl.arange"),
    Bug("words of the other consumer", FILE, "slot + part).load(", "slot).load("),
    Bug("words of the other group", FILE, "2 * slot + 1, zeros[1]", "2 * slot, zeros[1]"),
    Bug("scales of the step before", FILE, "first = w.blocks * (k + 1)", "first = w.blocks * k"),
    Bug("scales of other rows", FILE, "row = at[1] + part * 64", "row = at[1] + part * 0"),
    Bug("scales past the end", FILE, "(row < g[4]) & (group < g[5])", "(row >= 0) & (group >= 0)"),
    Bug("the second product used in flight", FILE, "mma_wait(0, (two,))", "mma_wait(1, (two,))"),
    Bug("the first product used in flight", FILE, "warpgroup_mma_wait(1, (one,))", "one"),
    Bug("too few bytes expected", FILE, "(w.consumers * g[0].block", "(g[0].block"),
    Bug("zeros forgotten", FILE, "        if w.has_zeros:\n", "        if False:\n"),
    Bug("room reused while it is stored", FILE, "        tma.store_wait(0)\n", ""),
    Bug("no fence before a store", FILE, "        fence_async_shared()\n", ""),
    Bug("rows of X of another tile", FILE, "[at[0], group * 128]", "[0, group * 128]"),
)  # fmt: skip


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_noticed(bug: Bug, tmp_path: Path) -> None:
    module = bug.load(FILE, tmp_path)
    for seed in SEEDS:
        try:
            off = error(module, 100, 333, 5, True, torch.bfloat16, seed, BM=64, consumers=2)
        except (EmulationError, RuntimeError):
            return
        if not off < ROUNDED:
            return
    pytest.fail("nobody noticed")


@pytest.mark.parametrize(("has_zeros", "dtype"), [(False, torch.bfloat16), (True, torch.float16)])
@pytest.mark.parametrize("m", [1, 32, 64, 256, 4096])
def test_it_is_compiled_without_complaints(m: int, has_zeros: bool, dtype: torch.dtype) -> None:
    work = hopper.choose(m, 8192, 132, has_zeros)
    types = {
        "words": block(torch.int32, [64, 16]),
        "x": block(dtype, [work.BM, 128]),
        "y": block(dtype, [work.BM, 64]),
        **dict.fromkeys(("M", "N", "groups"), "i32"),
        "scale": pointer(dtype),
        "s_row": "i32",
        "zero": "*u8",
        "z_row": "i32",
    }
    made = compile_for_hopper(hopper.int4_gemm_kernel, types, {"w": work.constant})
    assert made.complaints == [] and made.products > 0


def test_what_it_is_for() -> None:
    x, packed, scales, zeros = int4.inputs(300, 64, 256, 128, True, "cpu")
    assert not hopper.is_for(x, packed, scales)
    with mock.patch.object(hopper, "runs_on_hopper", lambda *_: True):
        assert hopper.is_for(x, packed, scales) and hopper.is_for(x, packed, scales, zeros)
        assert not hopper.is_for(x, packed, scales.repeat_interleave(2, 1))
        wide = torch.zeros(16, 257, dtype=x.dtype)
        assert not hopper.is_for(wide[:, 1:], packed, scales)
        assert not hopper.is_for(x, torch.zeros(64, 130, dtype=torch.uint8)[:, :128], scales)
        with mock.patch.object(hopper, "MOST_ELEMENTS", x.numel() - 1):
            assert not hopper.is_for(x, packed, scales)
