"""The product of few rows with a 4-bit matrix on Hopper: emulated, with bugs, and compiled."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
import torch
import triton
from seeded import Bug
from triton.experimental.gluon._runtime import GluonASTSource

from assay.tiles.assembler import BF16_BITS, FP16_BITS
from assay.tiles.emulate import EmulationError, emulate
from assay.tiles.emulated_language import WORDS
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
    as_chosen = few.work_of(m, has_zeros)
    work = module.FewRows(stages=as_chosen.stages, BM=as_chosen.BM, has_zeros=has_zeros)
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
        (9, 100, 33, False, torch.float16),
        (16, 33, 18, True, torch.bfloat16),
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
@pytest.mark.parametrize(("m", "dtype"), [(1, "bf16"), (8, "fp16"), (16, "bf16")])
def test_weights_go_from_memory_to_tensor_cores(m: int, dtype: str, has_zeros: bool) -> None:
    """Sixteen bytes at once, without spills, shared memory or barriers between one product and the next."""
    work, names = few.work_of(m, has_zeros), few.few_rows_kernel.arg_names
    types = {"x": dtype, "words": "i32", "scale": dtype, "zero": "u8", "out": dtype}
    types = {name: f"*{types[name]}" if name in types else "i32" for name in names} | {"w": "constexpr"}
    aligned = [names.index(name) for name in ("x", "words", "scale", "zero", "out", "x_row", "w_row")]
    attributes = {(place,): [["tt.divisibility", 16]] for place in aligned}
    source = GluonASTSource(few.few_rows_kernel, types, {(names.index("w"),): work.constant}, attributes)
    made = triton.compile(source, target=HOPPER, options={"num_warps": work.WARPS})
    text, told = made.asm["ptx"], assembled(made.asm["ptx"])
    assert not any(map(int, re.findall(r"(\d+) bytes spill", told))), told
    products = [found.start() for found in re.finditer("mma.sync", text)]
    assert len(products) == 8 * (work.BM // 8) * work.stages
    between = text[products[0] : products[-1]]
    assert "shared" not in between and "bar.sync" not in between and "ld.global.v4" in between


def halves(register: int, dtype: torch.dtype) -> torch.Tensor:
    """The two numbers that a register holds."""
    return torch.tensor([register], dtype=torch.int64).to(torch.int32).view(dtype)


def ran(text: str, word: int, zeros: int, dtype: torch.dtype) -> list[float]:
    """The eight numbers that these lines of PTX make of a word."""
    registers = {"$4": word, "$12": zeros}

    def value(name: str) -> int:
        return registers[name] if name in registers else int(name, 0)

    for line in text.strip("{ }").split(";")[1:-1]:
        what, *names = line.replace(",", " ").split()
        a, b, *c = map(value, names[1:])
        if what == "shr.u32":
            made = a >> b
        elif what == "lop3.b32":
            assert c[1] == 0xEA
            made = (a & b) | c[0]
        else:
            assert what == {torch.bfloat16: "sub.bf16x2", torch.float16: "sub.f16x2"}[dtype]
            difference = halves(a, dtype) - halves(b, dtype)
            made = int(difference.view(torch.int32)) & 0xFFFFFFFF
        registers[names[0]] = made
    return torch.cat([halves(registers[f"${i}"], dtype) for i in range(4)]).tolist()


@pytest.mark.parametrize(
    ("text", "dtype", "one"),
    [(BF16_BITS.value, torch.bfloat16, 0x4300), (FP16_BITS.value, torch.float16, 0x6400)],
)
def test_words_are_unpacked_as_the_emulator_does(text: str, dtype: torch.dtype, one: int) -> None:
    for word in (0, 0xFFFFFFFF, 0x76543210, 0x89ABCDEF, 0xF0E1D2C3):
        for zero in (0, 8, 15):
            signed = torch.full((8,), word, dtype=torch.int64).to(torch.int32)
            wanted = WORDS["four_bits"](signed, torch.tensor(zero), dtype).tolist()
            assert ran(text, word, (one + zero) * 0x10001, dtype) == wanted


def test_who_has_few_rows() -> None:
    x, packed, scales = int4.inputs(16, 64, 256, 128, False, "cpu")
    assert not few.has_few_rows(x, packed, scales)
    with mock.patch.object(few, "runs_on_hopper", lambda *_: True):
        assert few.has_few_rows(x, packed, scales)
        assert not few.has_few_rows(torch.cat((x, x[:1])), packed, scales)
        assert not few.has_few_rows(x, packed, scales.repeat_interleave(2, 1))
        wide = torch.zeros(16, 257, dtype=x.dtype)
        assert not few.has_few_rows(wide[:, 1:], packed, scales)
        assert not few.has_few_rows(x, torch.zeros(64, 130, dtype=torch.uint8)[:, :128], scales)
