"""Gluon kernels on a CPU: right under every schedule, and each of a list of bugs is noticed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from emulated_kernels import (
    attention_error,
    based_error,
    convolution_error,
    emulated_launches,
    gemm_error,
    gradient_error,
    mamba2_error,
    mamba2_inputs,
    order_of,
)
from seeded import ATTENTION, BASED, BUGS, CAUSAL, CONV2D, GEMM, MAMBA2, ONE_WALK, TWO_WALKS, Bug

from assay.tiles.assembler import heard, take, wait_for_last
from assay.tiles.emulate import Descriptor, EmulationError, emulate
from assay.tiles.hopper import gl, jit, mbarrier, tma
from assay.tiles.kernels import (
    attention,
    attention_causal_walk,
    attention_one_walk,
    attention_two_walks,
    based_hopper,
    conv2d_hopper,
    gemm,
    mamba2,
    mamba2_hopper,
)

ROUNDED = 4e-3
"""Half a unit of bfloat16, and the sums' own."""
SEEDS = range(3)
"""Copies land at once, late, or in any order."""
SCHEDULES = {GEMM: 8}
"""Enough for the rarest bug of a kernel; of others, 4."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("m", "n", "k", "how"),
    [
        (256, 256, 256, {}),
        (300, 200, 520, {"transposed": True, "has_bias": True, "activation": "gelu"}),
        (130, 300, 64, {"has_bias": True, "has_residual": True, "activation": "silu"}),
        (64, 128, 1000, {"activation": "relu", "stages": 5, "dtype": torch.float16}),
    ],
)
def test_a_product_with_its_epilogue(m: int, n: int, k: int, how: dict, seed: int) -> None:
    assert gemm_error(gemm, m, n, k, seed, **how) < ROUNDED


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "s", "t", "how"),
    [
        (2, 1, 256, 256, {}),
        (2, 2, 200, 300, {"is_causal": True, "d": 128}),
        (4, 2, 130, 130, {"is_causal": True, "stages": 3}),
        (1, 1, 70, 500, {"stages": 3}),
        (2, 1, 400, 300, {"consumers": 3, "BN": 128}),
        (2, 2, 400, 400, {"consumers": 3, "BN": 128, "is_causal": True}),
        (1, 1, 390, 425, {"consumers": 3, "BN": 128, "is_causal": True}),
        (1, 1, 150, 170, {"d": 256, "BN": 32, "stages": 4, "is_causal": True}),
    ],
)
def test_attention(heads: int, kv_heads: int, s: int, t: int, how: dict, seed: int) -> None:
    assert attention_error(attention, heads, kv_heads, s, t, seed, **how) < ROUNDED


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "s", "t", "how"),
    [
        (2, 1, 256, 256, {}),
        (2, 2, 200, 300, {"is_causal": True, "d": 128}),
        (4, 2, 130, 130, {"is_causal": True}),
        (1, 1, 70, 500, {}),
        (4, 2, 300, 60, {"is_causal": True, "d": 128}),
        (3, 1, 200, 128, {"d": 128}),
    ],
)
@pytest.mark.parametrize("walks", [1, 2])
def test_gradients_of_attention(
    walks: int, heads: int, kv_heads: int, s: int, t: int, how: dict, seed: int
) -> None:
    module = attention_causal_walk if how.get("is_causal") else attention_one_walk
    module = attention_two_walks if walks == 2 else module
    assert gradient_error(module, heads, kv_heads, s, t, seed, **how) < ROUNDED


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "s", "t", "d"),
    [
        (3, 3, 256, 256, 128),
        (5, 5, 256, 256, 64),
        (1, 1, 128, 128, 128),  # one tile for one program
        (6, 2, 140, 400, 64),
    ],
)
def test_gradients_whose_tiles_are_taken(
    heads: int, kv_heads: int, s: int, t: int, d: int, seed: int
) -> None:
    module = attention_causal_walk
    assert gradient_error(module, heads, kv_heads, s, t, seed, d=d, is_causal=True) < ROUNDED


@pytest.mark.parametrize(
    ("batch", "length", "heads", "groups", "seed", "how"),
    [
        (1, 1, 2, 1, 0, {}),
        (1, 40, 3, 1, 1, {"has_d": False}),
        (1, 64, 2, 1, 2, {"dtype": torch.float16}),
        (2, 200, 2, 1, 0, {"is_sliced": True}),
        (2, 300, 4, 2, 1, {"processors": 14}),
        (1, 200, 6, 2, 2, {"has_d": False}),
        (3, 130, 5, 1, 0, {"processors": 2}),
        (1, 700, 2, 1, 1, {"strength": 50.0, "has_rests": True}),
        (1, 300, 2, 1, 2, {"strength": 1e8, "has_rests": True}),
        (1, 700, 2, 1, 2, {"strength": 0.01}),
        (1, 900, 2, 1, 1, {"processors": 1}),
        (1, 450, 2, 1, 0, {"processors": 4}),
        (1, 1300, 2, 1, 0, {"processors": 2, "strength": 0.01}),
    ],
)
def test_mamba2(batch: int, length: int, heads: int, groups: int, seed: int, how: dict) -> None:
    assert mamba2_error(mamba2_hopper, batch, length, heads, groups, seed, **how) < ROUNDED


@pytest.mark.parametrize(
    ("batch", "heads", "length", "seed", "how"),
    [
        (1, 1, 1, 0, {}),
        (1, 3, 65, 1, {"normalise": False}),
        (2, 3, 200, 2, {"order": "side by side"}),
        (1, 2, 330, 0, {"order": "askew", "processors": 2}),
        (1, 2, 700, 1, {"consumers": 3}),
        (1, 1, 1100, 2, {"processors": 3}),
        (1, 2, 260, 0, {"strength": 300.0}),
        (2, 1, 200, 1, {"dv": 16, "BN": 64, "stages": 2}),
        (1, 2, 257, 2, {"dv": 128}),
        (1, 2, 260, 0, {"dtype": torch.float16, "strength": 30.0, "dv": 32}),
        (1, 2, 260, 1, {"dtype": torch.float16, "strength": 3.0, "normalise": False}),
    ],
)
def test_based(batch: int, heads: int, length: int, seed: int, how: dict) -> None:
    assert based_error(based_hopper, batch, heads, length, seed, **how) < ROUNDED


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("n", "channels", "high", "wide", "outputs", "how"),
    [
        (1, 64, 1, 1, 8, {}),
        (2, 64, 16, 16, 40, {}),
        (2, 64, 9, 11, 72, {"consumers": 3, "relu": True}),
        (3, 40, 5, 6, 136, {"is_last": False}),
        (70, 64, 3, 3, 264, {"dtype": torch.float16}),
        (2, 128, 20, 17, 72, {"window": (1, 1), "padding": 0, "has_bias": False}),
        (2, 64, 16, 16, 64, {"dilation": 2, "padding": 3}),
        (2, 64, 20, 16, 64, {"window": (5, 3), "padding": 2}),
        (2, 64, 19, 16, 64, {"window": (4, 3), "padding": 0}),
        (1, 64, 2, 2, 8, {"pooled": True}),
        (2, 72, 13, 9, 72, {"pooled": True, "window": (3, 2)}),
        (2, 128, 16, 17, 56, {"pooled": True, "is_last": False}),
    ],
)
def test_convolutions(
    n: int, channels: int, high: int, wide: int, outputs: int, how: dict, seed: int
) -> None:
    assert convolution_error(conv2d_hopper, n, channels, high, wide, outputs, seed, **how) < ROUNDED


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("outputs", [64, 72])
def test_not_a_number_goes_through_relu_and_maxima(outputs: int, pooled: bool) -> None:
    """As far as windows see it."""
    x, weight = torch.randn(1, 64, 16, 16).bfloat16(), torch.randn(outputs, 64, 3, 3).bfloat16()
    x[0, 5, 7, 3] = math.nan
    y = torch.zeros(1, outputs, *((8, 8) if pooled else (16, 16))).bfloat16()
    with emulated_launches(conv2d_hopper, 5, 0):
        y = conv2d_hopper.convolved_on_hopper(x, weight, None, y, [1] * 6, relu=True, pooled=pooled)
    seen = torch.zeros(16, 16, dtype=torch.bool)
    seen[6:9, 2:5] = True
    if pooled:
        seen = seen.view(8, 2, 8, 2).any(3).any(1)
    assert y[0, :, seen].isnan().all() and not y[0, :, ~seen].isnan().any()


def test_relu_of_not_a_number_is_none() -> None:
    a, b = torch.randn(64, 64).bfloat16(), torch.randn(64, 128).bfloat16()
    a[3, 5] = math.nan
    c = torch.zeros(64, 128).bfloat16()
    described = Descriptor(a, [64, 64]), Descriptor(b, [64, 128]), Descriptor(c, [64, 128])
    work = gemm.Gemm(BN=128, activation="relu")
    emulate(gemm.gemm_kernel, (1,), *described, 64, 128, 64, c, c, work.constant)
    assert c[3].isnan().all() and not c[4].isnan().any()


@pytest.mark.parametrize(("step", "pace"), [(math.nan, math.nan), (-1e-3, 1e-3), (-1e30, 1e30)])
def test_what_a_bad_step_leaves_of_mamba2_is_nan(step: float, pace: float) -> None:
    """In its head, from its row on; so does a bad pace."""
    x, dt, a, b, c, d = mamba2_inputs(1, 200, 3, 1)
    dt[0, 70, 0] = dt[0, 130, 1] = step
    a[2] = pace
    with emulated_launches(mamba2_hopper, 5, 0):
        got = mamba2_hopper.mamba2_on_hopper(x, dt, a, b, c, d)
    for answer in (got, mamba2.reference(x, dt, a, b, c, d)):
        for head, row in enumerate((70, 130, 0)):
            assert answer[0, :row, head].isfinite().all() and answer[0, row:, head].isnan().all()


def shows(bug: Bug, kernel: str, folder: Path) -> bool:
    """Whether anybody who runs it under a few schedules would notice."""
    module = bug.load(kernel, folder)
    try:
        seeds = range(SCHEDULES.get(kernel, 4))
        return any(not error < ROUNDED for seed in seeds for error in errors(module, kernel, seed))
    except EmulationError:
        return True


def errors(module: ModuleType, kernel: str, seed: int) -> Iterator[float]:
    """Of each of a few sizes."""
    if kernel == GEMM:
        yield gemm_error(module, 300, 200, 520, seed, has_bias=True)
    elif kernel == MAMBA2:
        length, processors = (450, 4) if seed % 2 else (1300, 2)
        yield mamba2_error(module, 1, length, 2, 1, seed, processors=processors, strength=0.1)
    elif kernel == BASED:
        sizes = {"processors": 3, "stages": 3, "consumers": 2 + seed % 2}
        yield based_error(module, 2, 2, 450, seed, **sizes)
        halves = {"dtype": torch.float16, "strength": 20.0 ** (seed % 2), "normalise": seed % 2 == 1}
        yield based_error(module, 1, 2, 40, seed, **halves)
    elif kernel == CONV2D:
        yield from convolution_errors(module, seed)
    elif kernel in (ONE_WALK, CAUSAL, TWO_WALKS):
        is_causal = kernel == CAUSAL or (kernel == TWO_WALKS and seed % 2 == 0)
        yield gradient_error(module, 4, 2, 140, 170, seed, is_causal=is_causal)
        if kernel == CAUSAL:  # tiles shorter than the ring
            yield gradient_error(module, 3, 3, 130, 130, seed, is_causal=True)
    else:
        yield attention_error(module, 2, 1, 300, 330, seed, is_causal=seed % 2 == 0)
        yield attention_error(module, 6, 3, 200, 60, seed, stages=6)


def convolution_errors(module: ModuleType, seed: int) -> Iterator[float]:
    if seed % 2:
        apart = {"window": (3, 2), "padding": 2, "dilation": 2, "relu": True}
        yield convolution_error(module, 3, 128, 12, 7, 72, seed, **apart)
        box = {"images": 2, "rows": 8, "columns": 4, "pooled": True}
        yield convolution_error(module, 3, 72, 13, 6, 136, seed, **box)
    else:
        yield convolution_error(module, 4, 128, 16, 16, 64, seed, processors=2)
        yield convolution_error(module, 1, 40, 16, 8, 64, seed, window=(2, 3), pooled=True)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_seeded_bug_is_noticed(bug: Bug, tmp_path: Path) -> None:
    kernels = (GEMM, ATTENTION) if bug.kernel == "both" else (bug.kernel,)
    assert all(shows(bug, kernel, tmp_path) for kernel in kernels)


@pytest.mark.parametrize("kernel", [GEMM, ATTENTION, ONE_WALK, CAUSAL, TWO_WALKS, MAMBA2, BASED, CONV2D])
def test_without_a_bug_nothing_is_noticed(kernel: str, tmp_path: Path) -> None:
    assert not shows(Bug("none", "", "", ""), kernel, tmp_path)


@jit
def adding_kernel(sums, step):
    place = gl.arange(0, 8, gl.BlockedLayout([1], [32], [4], [0]))
    gl.atomic_add(sums + place // step, place * 1.0, sem="relaxed")


def test_values_added_to_one_place_all_count() -> None:
    sums = torch.zeros(4)
    emulate(adding_kernel, (3,), sums, 2)
    assert sums.tolist() == [3, 15, 27, 39]
    with pytest.raises(EmulationError, match="leaves its tensor"):
        emulate(adding_kernel, (1,), sums, 1)


@jit
def taking_kernel(counter, taken):
    for _ in range(4):
        gl.store(taken + take(counter), gl.program_id(0))


def test_programs_at_once_take_turns() -> None:
    orders = set()
    for seed in range(4):
        counter, taken = torch.zeros(1, dtype=torch.int32), torch.full((12,), -1)
        emulate(taking_kernel, (3,), counter, taken, seed=seed, at_once=True)
        assert counter.item() == 12 and taken.sort().values.tolist() == [0] * 4 + [1] * 4 + [2] * 4
        orders.add(tuple(taken.tolist()))
    assert len(orders) > 1
    with pytest.raises(EmulationError, match="before the kernel that writes it"):
        emulate(taking_kernel, (3,), counter, taken, late=[counter])


@jit
def telling_kernel(numbers, out, waits):
    told = gl.allocate_shared_memory(gl.int32, [4], numbers.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    if waits:
        wait_for_last()
    mbarrier.expect(bar, numbers.block_type.nbytes)
    tma.async_copy_global_to_shared(numbers, [4 * 2], bar, told)
    mbarrier.wait(bar, 0)
    gl.store(out, heard(told))


def test_nothing_is_copied_before_the_kernel_that_writes_it_has_ended() -> None:
    order, out = order_of(3), torch.full((1,), -1)
    emulate(telling_kernel, (1,), Descriptor(order, [4]), out, True, late=[order])
    assert out.item() == 2
    with pytest.raises(EmulationError, match="before the kernel that writes it"):
        emulate(telling_kernel, (1,), Descriptor(order, [4]), out, False, late=[order])
