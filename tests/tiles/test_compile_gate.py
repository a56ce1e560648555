"""Tile kernels compiled for Hopper without one: nothing spills, and no product waits for another."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from triton.compiler import ASTSource

from assay.tiles.gate import (
    ALIGNMENT_BYTES,
    HOPPER,
    MOST_SHARED_BYTES,
    Compiled,
    block,
    compile_for_hopper,
    pointer,
    unlike_sums,
)
from assay.tiles.kernels import attention_causal_walk, attention_one_walk, cross_entropy, softmax
from assay.tiles.kernels.attention import STEPS, Attention, attention_kernel
from assay.tiles.kernels.attention_backward import finish_kernel, prepare_kernel
from assay.tiles.kernels.attention_causal_walk import CausalGradients, causal_gradients_kernel
from assay.tiles.kernels.attention_one_walk import Gradients, gradients_kernel
from assay.tiles.kernels.attention_two_walks import (
    KeyGradient,
    QueryGradient,
    key_gradient_kernel,
    query_gradient_kernel,
)
from assay.tiles.kernels.based_hopper import WIDTHS, based_kernel
from assay.tiles.kernels.based_hopper import choose as choose_based
from assay.tiles.kernels.conv2d_boxes import Convolution, convolution_kernel
from assay.tiles.kernels.conv2d_held import Held, held_kernel
from assay.tiles.kernels.conv2d_hopper import choose as choose_convolution
from assay.tiles.kernels.decode_attention import combine_kernel
from assay.tiles.kernels.gemm import Gemm, gemm_kernel
from assay.tiles.kernels.mamba2_ends import RECORD, Ends, Scan, ends_kernel
from assay.tiles.kernels.mamba2_hopper import Outputs, outputs_kernel
from assay.tiles.rounding import rounded
from assay.tiles.work import files_of


def compiled_gemm(dtype: torch.dtype, **how) -> Compiled:
    work = Gemm(**how)
    b = [work.BN, work.BK] if work.transposed else [work.BK, work.BN]
    types = {
        "a": block(dtype, [64, work.BK]),
        "b": block(dtype, b),
        "c": block(dtype, [64, work.BN]),
        **dict.fromkeys(("M", "N", "K"), "i32"),
        **dict.fromkeys(("bias", "residual"), pointer(dtype)),
    }
    return compile_for_hopper(gemm_kernel, types, {"w": work.constant})


def compiled_attention(dtype: torch.dtype, **how) -> Compiled:
    work = Attention(**how)
    types = {
        **{
            name: block(dtype, [1, rows, work.D])
            for name, rows in (("q", 64), ("k", work.BN), ("v", work.BN), ("o", 64))
        },
        **dict.fromkeys(("S", "T", "heads", "group", "together"), "i32"),
        "scale": "fp32",
        "sums": pointer(torch.float32),
    }
    return compile_for_hopper(attention_kernel, types, {"w": work.constant})


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"transposed": True, "has_bias": True, "activation": "gelu"},
        {"has_bias": True, "activation": "relu"},
        {"BN": 128, "stages": 5, "has_bias": True, "has_residual": True, "activation": "silu"},
    ],
)
def test_gemm(how: dict) -> None:
    made = compiled_gemm(torch.bfloat16, **how)
    assert made.complaints == [] and made.products > 0


@pytest.mark.parametrize(
    "how",
    [
        {**STEPS[128], "is_causal": True},
        {"D": 64, "BN": 128, "stages": 3, "is_causal": True},
        {"D": 256, **STEPS[256]},
    ],
)
def test_attention(how: dict) -> None:
    made = compiled_attention(torch.float16, **how)
    assert made.complaints == [] and made.products > 0


def test_attention_with_three_consumers() -> None:
    """Some registers are spilled; without that it would have two consumers, which is slower."""
    made = compiled_attention(torch.float16, D=64, **STEPS[64], consumers=3)
    assert not made.is_serialised and made.spilled_bytes < 400 and made.products > 0


def test_what_does_not_fit_is_told() -> None:
    """A residual of 256 columns beside as many sums is more than a thread's registers hold."""
    assert any("spilled" in text for text in compiled_gemm(torch.bfloat16, has_residual=True).complaints)


def test_complaints_say_what_is_wrong() -> None:
    bad = Compiled(255, 16, MOST_SHARED_BYTES + 1, 8, True, 1)
    assert len(bad.complaints) == 4 and "16 bytes" in bad.complaints[0]
    assert Compiled(168, 0, MOST_SHARED_BYTES, 8, False).complaints == []


def test_changed_functions_make_another_kernel() -> None:
    """Triton keeps compiled kernels by their constants' text."""
    one, other = repr(Gemm().constant), repr(Gemm(stages=4).constant)
    assert one != other and Gemm().code in one and len(Gemm().code) == 16
    assert Attention().code != Gemm().code
    called = {"assay.tiles.kernels.attention_two_walks", "assay.tiles.assembler", "assay.tiles.pipeline"}
    assert called <= set(files_of(Gradients))
    more = {"assay.tiles.kernels.attention_one_walk", "assay.tiles.counted_pipeline"}
    assert called | more <= set(files_of(CausalGradients))
    assert called | {"assay.tiles.kernels.mamba2_hopper"} <= set(files_of(Outputs))


@pytest.mark.parametrize(
    ("kernel", "work"),
    [
        (query_gradient_kernel, QueryGradient()),
        (query_gradient_kernel, QueryGradient(D=64, is_causal=True)),
        (key_gradient_kernel, KeyGradient(BM=32, stages=4, is_causal=True)),
        (key_gradient_kernel, KeyGradient(D=64)),
    ],
)
def test_gradients_of_attention(kernel, work: QueryGradient | KeyGradient) -> None:
    assert compiled_gradient(kernel, work).complaints == []


def test_wide_key_gradients_spill_a_little() -> None:
    """Steps of 32 queries would not, and are slower by a tenth on an H200."""
    made = compiled_gradient(key_gradient_kernel, KeyGradient(stages=2, is_causal=True))
    assert not made.is_serialised and 0 < made.spilled_bytes < 512


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize(("is_causal", "dtype"), [(False, torch.float16), (True, torch.bfloat16)])
def test_gradients_at_once_spill_between_tiles(d: int, is_causal: bool, dtype: torch.dtype) -> None:
    """What a tile needs once; their walk runs without a product that waits for another."""
    if is_causal:
        work = attention_causal_walk.choose(d, 4096, 4096, 1)
        made = compiled_gradient(causal_gradients_kernel, work, dtype)
    else:
        made = compiled_gradient(gradients_kernel, attention_one_walk.choose(d, 4096, 1), dtype)
    assert not made.is_serialised and made.spilled_bytes < 2400 and made.shared_bytes < MOST_SHARED_BYTES


def test_sizes_that_are_one_are_constants() -> None:
    """Of the launch, which Triton compiles another kernel for: two heads of keys, walked one by one."""
    work = attention_causal_walk.choose(64, 300, 60, 8)
    ones = dict.fromkeys(("together", "in_groups"), 1)
    made = compiled_gradient(causal_gradients_kernel, work, **ones)
    assert not made.is_serialised and made.spilled_bytes < 2400


def compiled_gradient(
    kernel, work: QueryGradient | KeyGradient, dtype: torch.dtype = torch.bfloat16, **ones: int
) -> Compiled:
    walked = getattr(work, "BM", 64)
    rows = {"q": walked, "do": walked, "k": 64, "v": 64, "dq": 64, "dk": 64, "dv": 64}
    types = {name: block(dtype, [1, n, work.D]) for name, n in rows.items()}
    types |= dict.fromkeys(("S", "T", "heads", "kv_heads", "group", "together", "in_groups"), "i32")
    types |= {"scale2": "fp32", "scale": "fp32", "sums": "*fp32", "delta": "*fp32", "order": "*i32"}
    types |= {"rows": block(torch.float32, [walked]), "numbers": block(torch.int32, [4])}
    types |= {"keys": pointer(dtype), "values": pointer(dtype)}
    given = {name: types[name] for name in kernel.arg_names if name in types and name not in ones}
    return compile_for_hopper(kernel, given, {"w": work.constant, **ones})


def plain_text(kernel, types: dict[str, str], **constants: int | bool | None) -> str:
    """A plain kernel's PTX, its pointers aligned as those of launches are."""
    names = kernel.arg_names
    signature = {name: types.get(name, "constexpr") for name in names}
    values = {(names.index(name),): one for name, one in constants.items()}
    pointers = [names.index(name) for name, kind in types.items() if kind.startswith("*")]
    aligned = {(place,): [["tt.divisibility", ALIGNMENT_BYTES]] for place in pointers}
    source = ASTSource(kernel, signature, values, aligned)
    return triton.compile(source, target=HOPPER, options={"num_warps": 4}).asm["ptx"]


def test_a_walk_begins_early() -> None:
    """What is before it lets it, but for two walks; what is behind it waits before it reads the first sum."""
    types = {"do": "*bf16", "o": "*bf16", "sums": "*fp32", "kept": "*fp32", "dq": "*fp32", "order": "*i32"}
    types |= dict.fromkeys(("tiles", "S", "padded"), "i32")
    sizes = {"D": 64, "ROWS": 32}
    assert "griddepcontrol.launch_dependents" in plain_text(prepare_kernel, types, HAS_SUMS=True, **sizes)
    del types["order"]
    assert "griddepcontrol" not in plain_text(prepare_kernel, types, order=None, HAS_SUMS=False, **sizes)
    types = {"sums": "*fp32", "dq": "*bf16", "S": "i32", "scale": "fp32"}
    before, after = plain_text(finish_kernel, types, D=64).split("griddepcontrol.wait")
    assert "ld.global" not in before and "ld.global" in after


@triton.jit
def norm_kernel(x, out, ROUNDS: tl.constexpr):
    row, column = tl.arange(0, 4)[:, None], tl.arange(0, 32)[None, :]
    one = tl.load(x + row * 32 + column)
    tl.store(out + tl.arange(0, 4), tl.sum(rounded(one, one) if ROUNDS else one * one, 1))


def test_threads_share_the_bits_of_a_sum_of_products() -> None:
    types = {"x": "*fp32", "out": "*fp32"}
    assert unlike_sums(plain_text(norm_kernel, types, ROUNDS=False)) > 0
    assert unlike_sums(plain_text(norm_kernel, types, ROUNDS=True)) == 0


LOSS = {"x_ptr": "*bf16", "target_ptr": "*i64", "out_ptr": "*bf16", "logsum_ptr": "*fp32"}
LOSS |= dict.fromkeys(("rows", "columns", "x_stride", "ignored"), "i32")


@pytest.mark.parametrize(
    ("kernel", "types", "constants"),
    [
        (cross_entropy.held_forward_kernel, LOSS, {"UNIT": 8, "DEPTH": 8, "ROWS": 8, "LANES": 16}),
        (cross_entropy.long_forward_kernel, LOSS, {"UNIT": 8, "DEPTH": 4, "LANES": 128}),
        (softmax.long_forward_kernel, {**LOSS, "y_ptr": "*bf16"}, {"DEPTH": 8, "LANES": 128}),
        (
            combine_kernel,
            {"partial": "*fp32", "state": "*fp32", "out": "*bf16", "shares": "i32"},
            {"D": 64, "SHARES": 8},
        ),
    ],
)
def test_sums_that_are_put_together(kernel, types: dict[str, str], constants: dict[str, int]) -> None:
    """By threads of which each has one product."""
    more = {"IS_MEAN": False} if "IS_MEAN" in kernel.arg_names else {}
    given = {name: kind for name, kind in types.items() if name in kernel.arg_names}
    assert unlike_sums(plain_text(kernel, given, **constants, **more)) == 0


@pytest.mark.parametrize(
    ("kernel", "work", "dtype"),
    [
        (ends_kernel, Ends(), torch.bfloat16),
        (outputs_kernel, Outputs(), torch.bfloat16),
        (outputs_kernel, Outputs(has_d=False), torch.float16),
    ],
)
def test_mamba2_spills_a_few_bytes_between_tiles(kernel, work: Scan, dtype: torch.dtype) -> None:
    """Where a tile is; its walk keeps everything in registers."""
    types = {name: block(dtype, [1, 64, 64]) for name in "xy"}
    types |= {name: block(dtype, [1, 64, 128]) for name in "bc"}
    types |= dict.fromkeys(("tiles", "T", "heads", "shared", "last", "chunks"), "i32")
    types |= dict.fromkeys(("dt", "a", "ends", "decays", "d"), "*fp32")
    types["rows"] = block(torch.float32, [RECORD]) if isinstance(work, Outputs) else "*fp32"
    given = {name: types[name] for name in kernel.arg_names if name in types}
    made = compile_for_hopper(kernel, given, {"w": work.constant})
    assert not made.is_serialised and made.products > 0 and not made.unlike_sums
    assert made.spilled_bytes <= 80 and made.shared_bytes < MOST_SHARED_BYTES


@pytest.mark.parametrize(
    ("dtype", "dv", "normalise"),
    [*((torch.bfloat16, dv, True) for dv in WIDTHS), (torch.float16, 64, True), (torch.bfloat16, 64, False)],
)
def test_based(dtype: torch.dtype, dv: int, normalise: bool) -> None:
    work = choose_based(dtype, dv, normalise)
    blocks = {"q": (work.BM, 16), "k": (work.BN, 16), "v": (work.BN, dv), "o": (work.BM, dv)}
    types = {name: block(dtype, [1, 1, *sizes]) for name, sizes in blocks.items()}
    types |= dict.fromkeys(("T", "heads", "pairs"), "i32")
    made = compile_for_hopper(based_kernel, types, {"w": work.constant})
    assert made.complaints == [] and made.products > 0


@pytest.mark.parametrize(("pooled", "dtype"), [(False, torch.bfloat16), (True, torch.float16)])
@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        (Held, (64, 56, 56, 64, 3, 3, 64)),
        (Held, (4, 56, 56, 64, 3, 3, 128)),
        (Convolution, (64, 56, 56, 64, 1, 1, 256)),
        (Convolution, (64, 56, 56, 64, 7, 7, 64)),
        (Convolution, (64, 28, 28, 128, 3, 3, 128)),
        (Convolution, (64, 14, 14, 256, 3, 3, 256)),
        (Convolution, (64, 56, 56, 256, 3, 3, 128)),
    ],
)
def test_convolutions(
    kind: type[Convolution], sizes: tuple[int, ...], pooled: bool, dtype: torch.dtype
) -> None:
    work = choose_convolution(*sizes, True, 132, has_bias=True, relu=True, pooled=pooled)
    assert type(work) is kind
    half = 2 if pooled else 1
    box = work.rows, work.columns, 64
    of_y = work.rows // half, work.columns // half, work.BN
    types = {"x": block(dtype, [work.images, *box]), "weight": block(dtype, [work.BN, 1, 64])}
    types |= {"y": block(dtype, [work.images, *of_y]), "bias": pointer(dtype)}
    types |= dict.fromkeys(
        ("images", "high", "wide", "outputs", "pad_h", "pad_w", "dilation_h", "dilation_w"), "i32"
    )
    kernel = convolution_kernel
    if isinstance(work, Held):
        kernel = held_kernel
        types["more"] = block(dtype, [1, work.R - 1, work.columns, 64])
    made = compile_for_hopper(kernel, types, {"w": work.constant})
    assert made.complaints == [] and made.products > 0
