"""Products of fp8 and of 4-bit matrices: emulated, interpreted, and compiled for Hopper.

The interpreter is chosen when Triton is imported: one child process (this file as a script) does all that is
interpreted, and says what went wrong under the name of each check.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
import torch
import triton
from emulated_kernels import emulated_launches
from interpreting import interpreted
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from triton.compiler import ASTSource

from assay.problems.layouts import lay_out
from assay.tiles.emulate import Descriptor, EmulationError, emulate
from assay.tiles.gate import HOPPER, Compiled, assembled, block, compile_for_hopper, pointer
from assay.tiles.kernel import Unsupported
from assay.tiles.kernels import fp8_blocks as blocks_of
from assay.tiles.kernels import fp8_gemm as fp8
from assay.tiles.kernels import int4_gemm as int4

FP8 = torch.float8_e4m3fn
ROUNDED = 4e-3
"""Half a unit of bfloat16, and the sums' own."""
SEEDS = range(3)
"""Copies land at once, late, or in any order."""
WIDE = {"BN": 256, "stages": 3}
TALL = {"halves": 2, "blocks": 1, "places": 2}
THREE = {"consumers": 3, "stages": 4, "blocks": 1, "places": 2}


def fp8_error(
    module: ModuleType, m: int, n: int, k: int, seed: int, *, by_step: bool = False, **how
) -> float:
    """By how much C is off, with one scale; with scales of blocks where the module is fp8_blocks.

    Args:
        by_step: scales of A lie step by step.
    """
    torch.manual_seed(seed)
    has_blocks = hasattr(module, "Fp8Blocks")
    a, b, scale_a, scale_b = fp8.inputs(m, n, k, not has_blocks, "cpu")
    scale_a, scale_b = (x * (1 + torch.rand_like(x)) for x in (scale_a, scale_b))  # no two are alike
    wanted = fp8.reference(a, b, scale_a, scale_b).float()
    c = torch.full((m, n), math.nan).bfloat16()
    if by_step:
        scale_a = scale_a.T.contiguous().T

    if has_blocks:
        multiply_blocks(module, a, b, scale_a, scale_b, c, seed, **how)
    else:
        work = module.Fp8Gemm(**how)
        blocks = Descriptor(a, [64, 128]), Descriptor(b, [work.BN, 128]), Descriptor(c, [64, work.BN])
        emulate(module.fp8_gemm_kernel, (2,), *blocks, m, n, k, scale_a, scale_b, work.constant, seed=seed)
    return float((c.float() - wanted).norm() / wanted.norm())


def multiply_blocks(
    module: ModuleType,
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    c: Tensor,
    seed: int,
    **how: int,
) -> None:
    """In the emulator, in tiles that are not chosen."""
    with (
        mock.patch.object(module, "choose_blocks", lambda *_: module.Fp8Blocks(**how)),
        emulated_launches(module, 2, seed),
    ):
        module.multiply_blocks(a, b, scale_a, scale_b, c)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("m", "n", "k", "how"), [(130, 333, 128, {}), (300, 205, 1040, {"stages": 3}), (140, 300, 528, WIDE)]
)
def test_fp8_product_with_one_scale(m: int, n: int, k: int, how: dict, seed: int) -> None:
    assert fp8_error(fp8, m, n, k, seed, **how) < ROUNDED


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("how", [{}, TALL, THREE])
@pytest.mark.parametrize(("m", "n", "k"), [(256, 256, 256), (301, 205, 528), (70, 130, 1040)])
def test_fp8_product_with_scales_of_blocks(m: int, n: int, k: int, how: dict, seed: int) -> None:
    assert fp8_error(blocks_of, m, n, k, seed, by_step=seed == 1, **how) < ROUNDED


def test_a_scale_that_is_not_a_number_spoils_its_rows_and_columns_alone() -> None:
    """With an odd number of blocks there is a step with half a product, and no scales for the rest."""
    for how in ({}, TALL, THREE):
        for side in range(2):
            given = fp8.inputs(260, 390, 384, False, "cpu")
            given[2 + side][1, 0] = math.nan
            wanted = fp8.reference(*given)
            c = torch.zeros(260, 392).bfloat16()[:, :390]
            multiply_blocks(blocks_of, *given, c, 0, **how)
            assert torch.equal(c.isnan(), wanted.isnan()) and wanted.isnan().any()


@pytest.mark.parametrize("how", [{}, TALL, THREE])
@pytest.mark.parametrize("step", [0, 2])
def test_an_infinite_scale_is_that_of_its_columns_alone(step: int, how: dict[str, int]) -> None:
    a, b = torch.ones(130, 384).to(torch.float8_e4m3fn), torch.ones(260, 384).to(torch.float8_e4m3fn)
    scale_a, scale_b = torch.ones(130, 3), torch.ones(3, 3)
    scale_b[1, step] = math.inf
    c = torch.zeros(130, 264).bfloat16()[:, :260]
    multiply_blocks(blocks_of, a, b, scale_a, scale_b, c, 0, **how)
    assert torch.equal(c, fp8.reference(a, b, scale_a, scale_b)) and c[:, 128:256].isinf().all()


def test_scales_that_have_to_be_copied_live_until_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, scale_a, scale_b = fp8.inputs(130, 260, 384, False, "cpu")
    described: list[StorageWeakRef] = []
    gone: list[bool] = []

    def describe(tensor: Tensor, block: list[int]) -> None:
        described.append(StorageWeakRef(tensor.untyped_storage()))

    monkeypatch.setattr(blocks_of, "describe", describe)
    monkeypatch.setattr(blocks_of, "multiprocessors", lambda tensor: 2)
    monkeypatch.setattr(blocks_of, "launch", lambda *_: gone.extend(kept.expired() for kept in described))
    given = a, b, scale_a.T.contiguous().T, scale_b.T.contiguous().T
    blocks_of.multiply_blocks(*given, torch.zeros(130, 264).bfloat16()[:, :260])
    assert gone == 5 * [False]


BLOCK_BUGS = {
    "scale of the wrong step": ("[block * g[8] + row]", "[row]"),
    "scale of the wrong columns": ("return at[1] * blocks + min", "return 0 * blocks + min"),
    "scale of the other rows": (
        "room[3].index(w.rows * place + w.halves * part + half)",
        "room[3].index(w.rows * place)",
    ),
    "scale of the block before": (
        "part, 0, 2 * k + 1, room, 2 * slot + 1)",
        "part, 0, 2 * k, room, 2 * slot + 1)",
    ),
    "scales of the place before": (
        "part, 0, 2 * k + 1, room, 2 * slot + 1)",
        "part, 0, 2 * k + 1, room, 2 * slot)",
    ),
    "the first of four scales": ("index(w.scaled_by(w, g, at, block) % 4)", "index(0)"),
    "later sums used in flight": ("warpgroup_mma_wait(0, (later,))", "warpgroup_mma_wait(1, (later,))"),
    "fresh sums used in flight": ("warpgroup_mma_wait(1, (soon,))", "soon"),
    "both blocks in one place": ("room, 2 * slot + 1, zeros, False)", "room, 2 * slot, zeros, False)"),
    "too few bytes expected": ("(of_rows + g[1].block_type.nbytes", "(of_rows + 0 * g[1].block_type.nbytes"),
    "room reused while it is stored": ("                tma.store_wait(w.places - 1)\n", ""),
    "no fence before a store": ("                fence_async_shared()\n", ""),
    "one side twice": ("at[1] * 128 + side * 64]", "at[1] * 128]"),
}
TALL_BUGS = {
    "sums that go on from the product before": (
        "room, slot, made, g[5] < 0)\n            scale",
        "room, slot, made, True)\n            scale",
    ),
    "the first half twice": ("w.product(w, part, 1, room", "w.product(w, part, 0, room"),
    "the first half's scales": ("w.scale(w, g, at, part, 1, k", "w.scale(w, g, at, part, 0, k"),
    "a slot given back too late": (
        "holds: ClassVar[bool] = False",
        "holds: ClassVar[bool] = True\n    tail: ClassVar[bool] = True",
    ),
}
TENSOR_BUGS = {
    "sums begun anew": ("acc, room, slot, True)", "acc, room, slot, False)"),
    "sums used in flight": ("warpgroup_mma_wait(0, (acc,))", "acc"),
    "one scale forgotten": ("(gl.load(g[6]) * gl.load(g[7]))", "gl.load(g[6])"),
}


def changed(source: ModuleType, old: str, new: str, folder: Path) -> ModuleType:
    """A module with other words in one place, without its entry in torch's list of ops."""
    text = Path(source.__file__).read_text()
    assert text.count(old) == 1
    text = text.replace(old, new).replace('@op("fp8_gemm")', f'@op("fp8_gemm_{abs(hash((old, new)))}")')
    path = folder / "fp8_changed.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", [*BLOCK_BUGS, *TALL_BUGS, *TENSOR_BUGS])
def test_a_bug_in_the_fp8_product_is_noticed(name: str, tmp_path: Path) -> None:
    source = fp8 if name in TENSOR_BUGS else blocks_of
    module = changed(source, *(BLOCK_BUGS | TALL_BUGS | TENSOR_BUGS)[name], tmp_path)
    for seed in SEEDS:
        try:
            error = fp8_error(module, 300, 205, 400, seed, **(TALL if name in TALL_BUGS else {}))
        except EmulationError:
            return
        if not error < ROUNDED:
            return
    pytest.fail("nobody noticed")


def compiled_fp8(**how) -> Compiled:
    work = fp8.Fp8Gemm(**how)
    types = {"a": block(FP8, [64, 128]), "b": block(FP8, [work.BN, 128])}
    types |= {"c": block(torch.bfloat16, [64, work.BN]), **dict.fromkeys(("M", "N", "K"), "i32")}
    types |= dict.fromkeys(("scale_a", "scale_b"), pointer(torch.float32))
    return compile_for_hopper(fp8.fp8_gemm_kernel, types, {"w": work.constant})


def compiled_blocks(**how) -> Compiled:
    types = {"a": block(FP8, [64, 128]), "b": block(FP8, [128, 128]), "c": block(torch.bfloat16, [64, 64])}
    types |= dict.fromkeys(("M", "N", "K"), "i32")
    types |= {"scales_a": block(torch.float32, [64]), "scales_b": block(torch.float32, [32]), "a_step": "i32"}
    return compile_for_hopper(blocks_of.fp8_blocks_kernel, types, {"w": blocks_of.Fp8Blocks(**how).constant})


@pytest.mark.parametrize("how", [{}, WIDE])
def test_fp8_is_compiled_without_complaints(how: dict) -> None:
    made = compiled_fp8(**how)
    assert made.complaints == [] and made.products > 0


@pytest.mark.parametrize("how", [{}, TALL, THREE])
def test_fp8_by_blocks_is_compiled_without_complaints(how: dict) -> None:
    made = compiled_blocks(**how)
    assert made.complaints == [] and made.products > 0


def test_wide_tiles_are_for_many_tiles() -> None:
    assert fp8.choose(8192, 8192, 8192, 132) == fp8.Fp8Gemm(**WIDE)
    assert fp8.choose(512, 512, 512, 132).BN == 64
    chosen = {n: blocks_of.choose_blocks(n, n, n, 132) for n in (1024, 2048, 4096, 8192, 16384)}
    few, tall, three = (blocks_of.Fp8Blocks(**how) for how in ({}, TALL, THREE))
    assert list(chosen.values()) == [few, tall, tall, three, three]


@pytest.mark.parametrize("sizes", fp8.ENTRY.cases)
def test_fp8_is_near_the_product_that_it_was_made_from(sizes: dict) -> None:
    torch.manual_seed(1)
    m, n, k = (sizes[name] for name in "mnk")
    wanted = torch.randn(m, k) @ torch.randn(n, k).T
    torch.manual_seed(1)
    arguments = fp8.inputs(**sizes, device="cpu")
    got = fp8.fp8_gemm(*arguments)
    assert got.dtype == torch.bfloat16 and got.shape == (m, n)
    assert (got.float() - wanted).norm() / wanted.norm() < 0.05
    cost = fp8.cost(**sizes)
    assert cost.flops > cost.size_bytes == sum(t.nbytes for t in (*arguments, got))


def test_fp8_takes_any_strides_and_nothing() -> None:
    a, b, scale_a, scale_b = fp8.inputs(20, 140, 300, per_tensor=False, device="cpu")
    wanted = fp8.fp8_gemm(a, b, scale_a, scale_b)
    turned = [t.T.contiguous().T for t in (a, b, scale_a, scale_b)]
    assert torch.equal(fp8.fp8_gemm(*turned), wanted)
    assert fp8.fp8_gemm(a[:0], b, scale_a[:0], scale_b).shape == (0, 140)
    assert not fp8.fp8_gemm(a[:, :0], b[:, :0], scale_a[:, :0], scale_b[:, :0]).any()
    one = torch.tensor(0.5)
    twice = fp8.fp8_gemm(a, b, one, one.view(1, 1, 1))
    assert torch.equal(twice, (a.float() @ b.float().T * 0.25).bfloat16())


def test_tracers_see_what_fp8_gives() -> None:
    """On a GPU that is not there; and on a CPU, where the op answers though it cannot launch."""
    given = fp8.inputs(20, 141, 300, per_tensor=False, device="cpu")
    with FakeTensorMode():
        traced = fp8.fp8_gemm(*(torch.empty(t.shape, dtype=t.dtype, device="cuda") for t in given))
    assert traced.shape == (20, 141) and traced.dtype == torch.bfloat16 and traced.is_contiguous()
    torch.library.opcheck(fp8._fp8_gemm.overload, given, test_utils="test_faketensor")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a, b, s, t: (a.float(), b, s, t), "use float8_e4m3fn"),
        (lambda a, b, s, t: (a, b.to(torch.float8_e5m2), s, t), "types differ"),
        (lambda a, b, s, t: (a, b, s.half(), t.half()), "use float32"),
        (lambda a, b, s, t: (a[:, :64], b, s, t), "are no product"),
        (lambda a, b, s, t: (a, b, s[:, :1], t), "want one number each, or"),
        (lambda a, b, s, t: (a, b, s, t[:1]), "want one number each, or"),
        (lambda a, b, s, t: (a, b, s.requires_grad_(), t), "no backward"),
        (lambda a, b, s, t: (a.to("meta"), b, s, t), "different devices"),
    ],
)
def test_what_is_no_fp8_product_is_refused(change: Any, words: str) -> None:
    given = fp8.inputs(20, 140, 300, per_tensor=False, device="cpu")
    with pytest.raises(Unsupported, match=words):
        fp8.fp8_gemm(*change(*given))


def agree(given: tuple[Any, ...], expected: torch.Tensor | None = None) -> None:
    """To half a unit of float16, and the order in which sums are added."""
    wanted = int4.reference(*given) if expected is None else expected
    found = int4.int4_gemm(*given)
    assert found.is_contiguous()
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=2e-3)


def check_cases() -> None:
    for sizes in int4.ENTRY.cases:
        agree(int4.inputs(**sizes, device="cpu", dtype=torch.float16))


def check_exact() -> None:
    """Small whole numbers have no rounding: every weight, zero and scale is where it belongs."""
    for m, n, k, group in ((2, 70, 256, 64), (33, 40, 128, 128), (1, 20, 19 * 64, 64)):
        x = torch.randint(-3, 4, (m, k)).half()
        packed = torch.randint(256, (n, k // 2), dtype=torch.uint8)
        scales = torch.randint(1, 4, (n, k // group)).float() / 4
        zeros = torch.randint(16, scales.shape, dtype=torch.uint8)
        for given in ((x, packed, scales), (x, packed, scales, zeros)):
            assert torch.equal(int4.int4_gemm(*given), int4.reference(*given))


def check_no_split() -> None:
    """As where W has rows enough for every multiprocessor."""
    with mock.patch.object(int4, "MULTIPROCESSORS", 1):
        for m in (3, 70):
            assert int4.split(3, 5, is_short=m < int4.SHORT) == (1, 5)
            agree(int4.inputs(m, 190, 5 * 64, 64, m == 3, device="cpu", dtype=torch.float16))


def check_op() -> None:
    """That tracers see the shapes and strides that come out."""
    given = int4.inputs(3, 40, 128, 64, True, device="cpu", dtype=torch.float16)
    torch.library.opcheck(int4._int4_gemm.overload, given, test_utils=("test_schema", "test_faketensor"))


def check_layouts() -> None:
    """What lies between the elements is NaN or noise."""
    given = int4.inputs(3, 40, 128, 64, True, device="cpu", dtype=torch.float16)
    wanted = int4.reference(*given)
    for layout in ("strided", "offset", "transposed", "sliced"):
        agree(tuple(lay_out(t, layout) for t in given), wanted)
    x, packed, scales, zeros = given
    agree((x, packed, scales, torch.cat((zeros, zeros + 1), 1)[:, :2]), wanted)
    agree((x[:1].expand(3, -1), *given[1:]))
    agree((x.view(3, 1, 128), *given[1:]), wanted.view(3, 1, 40))


def check_empty() -> None:
    x, packed, scales = int4.inputs(2, 5, 128, 128, False, device="cpu", dtype=torch.float16)
    assert int4.int4_gemm(x[:0], packed, scales).shape == (0, 5)
    assert int4.int4_gemm(x, packed[:0], scales[:0]).shape == (2, 0)
    assert not int4.int4_gemm(x[:, :0], packed[:, :0], scales[:, :0]).any()


CHECKS = {
    check.__name__: check
    for check in (check_cases, check_exact, check_no_split, check_op, check_layouts, check_empty)
}


@pytest.mark.parametrize("name", CHECKS)
def test_int4_interpreted(name: str) -> None:
    assert interpreted(__file__)[name] == ""


def test_int4_is_what_its_formula_says() -> None:
    x = torch.eye(64).half()
    packed = torch.full((1, 32), 0x3C, dtype=torch.uint8)  # 12 for even k, 3 for odd ones
    scales = torch.tensor([[0.5]])
    assert int4.int4_gemm(x, packed, scales).flatten().tolist() == [2.0, -2.5] * 32
    zeros = torch.tensor([[3]], dtype=torch.uint8)
    assert int4.int4_gemm(x, packed, scales, zeros).flatten().tolist() == [4.5, 0.0] * 32


@pytest.mark.parametrize(
    ("dtype", "bits", "middle"), [(torch.bfloat16, 0x4300, 136.0), (torch.float16, 0x6400, 1032.0)]
)
def test_four_bits_become_a_number_without_rounding(dtype: torch.dtype, bits: int, middle: float) -> None:
    """The kernel's own numbers; the interpreter has no products of bfloat16 that could show them."""
    q = torch.arange(16, dtype=torch.int16)
    assert ((q | bits).view(dtype) - middle).tolist() == (q - 8).tolist()
    assert f"| {bits:#x})" in (source := Path(int4.__file__).read_text()) and f"- {middle}" in source


@pytest.mark.parametrize("sizes", int4.ENTRY.cases)
def test_int4_cost_is_what_it_reads_and_writes(sizes: dict) -> None:
    arguments = int4.inputs(**sizes, device="cpu")
    got = int4.int4_gemm(*arguments)
    cost = int4.cost(**sizes)
    assert got.dtype == torch.bfloat16
    assert cost.flops > cost.size_bytes == sum(t.nbytes for t in (*arguments, got))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, q, s, z: (x.float(), q, s, z), "use bfloat16, float16"),
        (lambda x, q, s, z: (x, q.char(), s, z), "types differ|use uint8"),
        (lambda x, q, s, z: (x, q, s.half(), z), "use bfloat16, float32"),
        (lambda x, q, s, z: (x, q, s, z.float()), "types differ"),
        (lambda x, q, s, z: (x[:, :128], q, s, z), "want \\(..., K\\)"),
        (lambda x, q, s, z: (x, q, s[:, :1], z[:, :1]), "a group being 64 or 128"),
        (lambda x, q, s, z: (x, q, s, z[:, :1]), "zeros of"),
        (lambda x, q, s, z: (x.requires_grad_(), q, s, z), "no backward"),
        (lambda x, q, s, z: (x.to("meta"), q, s, z), "different devices"),
        (lambda x, q, s, z: (x[:1].expand(2**24, 256), q, s, z), "split"),
    ],
)
def test_what_is_no_int4_product_is_refused(change: Any, words: str) -> None:
    given = int4.inputs(3, 40, 256, 64, True, device="cpu")
    with pytest.raises(Unsupported, match=words):
        int4.int4_gemm(*change(*given))


@pytest.mark.parametrize("m", [1, 16, 17, 64, 4096])
@pytest.mark.parametrize("n", [64, 1000, 8192, 30000])
@pytest.mark.parametrize("groups", [1, 7, 64])
def test_splits_have_all_groups_and_fill_the_gpu(m: int, n: int, groups: int) -> None:
    BM, BN, _, _ = int4.choose(m)
    tiles = triton.cdiv(m, BM) * triton.cdiv(n, BN)
    splits, each = int4.split(tiles, groups, is_short=BM <= int4.SHORT)
    assert (splits - 1) * each < groups <= splits * each
    if m <= 16 and groups == 64:
        assert tiles * splits >= int4.MULTIPROCESSORS or splits == int4.MOST_SPLITS


TYPES = {
    **dict.fromkeys(("x", "scale", "out"), "*bf16"),
    **dict.fromkeys(("packed", "zero"), "*u8"),
    "parts": "*fp32",
    **dict.fromkeys(("M", "N", "groups", "per_split", "x_row", "w_row", "s_row", "z_row", "size"), "i32"),
}
ALIGNED = ("x", "packed", "scale", "zero", "out", "parts", "x_row", "w_row", "N", "size")


def made_of(kernel: Any, warps: int, stages: int = 4, **constants: Any) -> tuple[str, str, str]:
    """The layouts, the assembly and what is said of it."""
    names = kernel.arg_names
    types = {name: "constexpr" if name in constants else TYPES[name] for name in names}
    values = {(names.index(name),): value for name, value in constants.items()}
    aligned = [name for name in names if name in ALIGNED and name not in constants]
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in aligned}
    source = ASTSource(kernel, types, values, attributes)
    made = triton.compile(source, target=HOPPER, options={"num_warps": warps, "num_stages": stages})
    return made.asm["ttgir"], made.asm["ptx"], assembled(made.asm["ptx"])


@pytest.mark.parametrize(
    ("m", "group", "has_zeros"),
    [(1, 128, False), (16, 64, True), (32, 128, True), (64, 128, True), (128, 128, False), (128, 64, False)],
)
def test_int4_is_compiled_without_spills(m: int, group: int, has_zeros: bool) -> None:
    """Weights go from shared memory to the tensor core's registers, and not back."""
    BM, BN, warps, stages = int4.choose(m, has_zeros)
    constants = {"GROUP": group, "HAS_ZERO": has_zeros, "BM": BM, "BN": BN} | ({"M": 1} if m == 1 else {})
    layouts, text, told = made_of(int4._int4_gemm_kernel, warps, stages, **constants)
    assert not any(map(int, re.findall(r"(\d+) bytes spill", told))), told
    assert "wgmma.mma_async" in text and "serialized" not in told
    assert re.search(r"local_load .*xi8, .*-> tensor<\d+x\d+xi8, #ttg.dot_op", layouts)


def test_sums_of_splits_are_compiled_without_spills() -> None:
    _, _, told = made_of(int4._added_kernel, 4, SPLITS=int4.MOST_SPLITS, BLOCK=int4.BLOCK)
    assert not any(map(int, re.findall(r"(\d+) bytes spill", told)))


if __name__ == "__main__":
    told = {}
    for name, check in CHECKS.items():
        torch.manual_seed(0)
        try:
            check()
            told[name] = ""
        except Exception:
            told[name] = traceback.format_exc()
    print(json.dumps(told))
