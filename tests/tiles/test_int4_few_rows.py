"""The product of few rows with a 4-bit matrix on Hopper: emulated, with bugs, and compiled."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch
import triton
from seeded import Bug
from triton.experimental.gluon._runtime import GluonASTSource

from assay.tiles.emulate import EmulationError, emulate
from assay.tiles.gate import HOPPER, assembled
from assay.tiles.kernels import int4_few_rows as few
from assay.tiles.kernels import int4_gemm as int4

ROUNDED = 4e-3
"""Half a unit of bfloat16, and the sums' own."""
FEW_ROWS = "kernels/int4_few_rows"


def error(module: ModuleType, m: int, n: int, groups: int, has_zeros: bool, dtype: torch.dtype) -> float:
    """By how much Y is off."""
    torch.manual_seed(m + n)
    x, packed, scales, *rest = int4.inputs(m, n, 128 * groups, 128, has_zeros, "cpu", dtype)
    wanted = int4.reference(x, packed, scales, *rest).float()
    work = module.work_of(has_zeros)
    out, words, zeros = torch.full((m, n), math.nan).to(dtype), packed.view(torch.int32), (*rest, packed)[0]
    strides = (t.stride(0) for t in (x, words, scales, zeros))
    grid = (triton.cdiv(n, work.BN),)
    emulate(module.few_rows_kernel, grid, x, words, scales, zeros, out, m, n, groups, *strides, work.constant)
    return float((out.float() - wanted).norm() / wanted.norm())


@pytest.mark.parametrize(
    ("m", "n", "groups", "has_zeros", "dtype"),
    [
        (1, 50, 8, False, torch.bfloat16),
        (5, 64, 1, False, torch.float16),
        (8, 70, 9, True, torch.float16),
        (7, 100, 33, False, torch.float16),
        (8, 33, 18, True, torch.bfloat16),
    ],
)
def test_product(m: int, n: int, groups: int, has_zeros: bool, dtype: torch.dtype) -> None:
    assert error(few, m, n, groups, has_zeros, dtype) < ROUNDED


BUGS = (
    Bug("X in another order", FEW_ROWS, "permute((0, 3, 5, 2, 4, 1))", "permute((0, 3, 5, 4, 2, 1))"),
    Bug("W in another order", FEW_ROWS, "permute((0, 1, 3, 4, 2, 5))", "permute((0, 1, 4, 3, 2, 5))"),
    Bug("groups counted on past the last", FEW_ROWS, "here -= gl.where(here < steps, 0, steps)", "here += 0"),
    Bug("a group twice", FEW_ROWS, "gl.where(step < steps, group, g[7])", "group"),
    Bug("groups past the end", FEW_ROWS, "group * size, group < g[7]", "group * size, group >= 0"),
    Bug("rows past the end", FEW_ROWS, "gl.expand_dims(row, 0), g[6] - 1)", "gl.expand_dims(row, 0), 999)"),
    Bug("rows of X past the end", FEW_ROWS, "(row < g[5]) & (group < g[7])", "(group < g[7]) & (row >= 0)"),
    Bug("X of the step before", FEW_ROWS, "w.inputs(w, g, step + j + 1)", "w.inputs(w, g, step + j)"),
    Bug("W of another step", FEW_ROWS, "step + j + w.stages)", "step + j + w.stages + 1)"),
    Bug("a stage never filled again", FEW_ROWS, "ahead = ahead[:j] + (w.", "ahead = ahead if j else (w."),
    Bug("scales of other rows", FEW_ROWS, "step, g[10], 1,", "step, g[10] + 1, 1,"),
    Bug("zeros of other rows", FEW_ROWS, "step, g[11], 1, layout", "step, g[10], 0, layout"),
    Bug("zeros forgotten", FEW_ROWS, "        if w.has_zeros:\n", "        if False:\n"),
    Bug("one warp's sums", FEW_ROWS, "gl.sum(sums, 0)", "sums[0]"),
    Bug("columns past the end", FEW_ROWS, "(m < M) & (n < N)", "(m < M) & (n >= 0)"),
)  # fmt: skip


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_noticed(bug: Bug, tmp_path: Path) -> None:
    module = bug.load(FEW_ROWS, tmp_path)
    try:
        off = error(module, 5, 70, 17, True, torch.bfloat16)
    except EmulationError:
        return
    assert not off < ROUNDED


@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_weights_go_from_memory_to_tensor_cores(dtype: str, has_zeros: bool) -> None:
    """Sixteen bytes at once, without spills, shared memory or barriers between one product and the next."""
    work, names = few.work_of(has_zeros), few.few_rows_kernel.arg_names
    types = {"x": dtype, "words": "i32", "scale": dtype, "zero": "u8", "out": dtype}
    types = {name: f"*{types[name]}" if name in types else "i32" for name in names} | {"w": "constexpr"}
    aligned = [names.index(name) for name in ("x", "words", "scale", "zero", "out", "x_row", "w_row")]
    attributes = {(place,): [["tt.divisibility", 16]] for place in aligned}
    source = GluonASTSource(few.few_rows_kernel, types, {(names.index("w"),): work.constant}, attributes)
    made = triton.compile(source, target=HOPPER, options={"num_warps": work.WARPS})
    text, told = made.asm["ptx"], assembled(made.asm["ptx"])
    assert not any(map(int, re.findall(r"(\d+) bytes spill", told))), told
    products = [found.start() for found in re.finditer("mma.sync", text)]
    assert len(products) == 8 * work.stages
    between = text[products[0] : products[-1]]
    assert "shared" not in between and "bar.sync" not in between and "ld.global.v4" in between
