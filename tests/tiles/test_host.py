"""From tensors to arguments of a kernel, without a GPU: what would be launched is emulated instead."""

from __future__ import annotations

import contextlib
import math
import types
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from emulated_kernels import dq_of_sums, emulated_launches, mamba2_inputs, order_of, relative

from assay.problems.layouts import lay_out
from assay.tiles.emulate import Descriptor, emulate
from assay.tiles.kernels import (
    attention,
    attention_backward,
    attention_causal_walk,
    attention_one_walk,
    attention_two_walks,
    conv2d,
    conv2d_boxes,
    conv2d_held,
    conv2d_hopper,
    conv2d_relu_maxpool,
    fp8_blocks,
    fp8_gemm,
    gemm,
    int4_gemm,
    int4_hopper,
    mamba2,
    mamba2_hopper,
)
from assay.tiles.launch import describe

ROUNDED = 6e-3


def start(kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], on: torch.Tensor, **_: Any) -> None:
    """What the kernels before and after a walk leave."""
    run = {attention_backward.prepare_kernel: prepared, attention_backward.finish_kernel: finished}
    run[kernel](*arguments)


def prepared(do, o, sums, kept, sums_of_dq, order, tiles: int, s: int, padded: int) -> None:
    sums_of_dq.zero_()
    if order is not None:
        order.copy_(order_of(tiles))
    kept[0], kept[1] = float("inf"), 0
    kept[0, :, :s] = sums.flatten(0, 1) / math.log(2)
    kept[1, :, :s] = (do.float() * o.float()).sum(-1).flatten(0, 1)


def finished(sums_of_dq, dq, s: int, scale: float) -> None:
    heads, d = dq.shape[0] * dq.shape[1], dq.shape[-1]
    dq.copy_((dq_of_sums(sums_of_dq, heads, s, d) * scale).view_as(dq))


def described(tensor: torch.Tensor, block: Sequence[int]) -> Descriptor:
    """What lies as the real ones say."""
    made = describe(tensor, block)
    return Descriptor(tensor.as_strided(made.shape, made.strides), block)


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, bool]]:
    """Notes down what is launched, and whether that begins while the last kernel ends."""
    before: list[torch.Tensor] = []
    found: list[tuple[Any, bool]] = []

    def launch(
        kernel: Any, programs: int, arguments: tuple[Any, ...], work: Any, *_: Any, waits_itself: bool = False
    ) -> None:
        assert len(arguments) == len(kernel.arg_names) - 1
        found.append((kernel, waits_itself))
        late = before if waits_itself else ()
        emulate(kernel, (programs,), *arguments, work.constant, late=late, at_once=waits_itself)

    def noted(kernel: Any, grid: Any, arguments: tuple[Any, ...], on: torch.Tensor, **how: Any) -> None:
        found.append((kernel, how.get("launch_pdl", False)))
        start(kernel, grid, arguments, on)
        before[:] = [one for one in arguments[3:] if isinstance(one, torch.Tensor)]

    stubs = {"launch": launch, "describe": described, "multiprocessors": lambda tensor: 2}
    walks = (attention_causal_walk, attention_one_walk, attention_two_walks)
    for module in (attention, *walks, conv2d_hopper, fp8_blocks, fp8_gemm, gemm, int4_hopper):
        _replace(monkeypatch, module, **{name: stub for name, stub in stubs.items() if hasattr(module, name)})
    for module in (conv2d_hopper, fp8_gemm, int4_hopper):
        monkeypatch.setattr(module, "runs_on_hopper", lambda *tensors: True)
    monkeypatch.setattr(attention_backward, "start", noted)
    monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)
    return found


def _replace(monkeypatch: pytest.MonkeyPatch, module: types.ModuleType, **names: Any) -> None:
    for name, value in names.items():
        monkeypatch.setattr(module, name, value)


@pytest.mark.parametrize("is_transposed", [False, True])
def test_gemm(emulated: Any, is_transposed: bool) -> None:
    a, b, bias = (torch.randn(shape).bfloat16() for shape in ((200, 136), (136, 72), (72,)))
    given = b.T.contiguous().T if is_transposed else b
    got = gemm._gemm(a, given, bias, None, "silu")
    assert relative(got, gemm.reference(a, b, bias, None, "silu")) < ROUNDED


@pytest.mark.parametrize("per_tensor", [False, True])
def test_fp8_gemm(emulated: Any, per_tensor: bool) -> None:
    given = fp8_gemm.inputs(150, 136, 272, per_tensor, "cpu")
    assert relative(fp8_gemm._fp8_gemm(*given), fp8_gemm.reference(*given)) < ROUNDED


@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(9, 130, 384), (40, 7, 256), (150, 200, 128)])
def test_int4_gemm(emulated: list[tuple[Any, bool]], m: int, n: int, k: int, has_zeros: bool) -> None:
    given = int4_gemm.inputs(m, n, k, 128, has_zeros, "cpu")
    wanted = int4_gemm.reference(*given)
    apart = torch.zeros(m, k + 8).bfloat16()[:, :k].copy_(given[0])
    for x in (given[0], apart):
        got = int4_gemm._int4_gemm(x, *given[1:], *(() if has_zeros else (None,)))
        assert relative(got, wanted) < ROUNDED and got.is_contiguous()
    assert emulated[0] == (int4_hopper.int4_gemm_kernel, False)


@pytest.mark.parametrize("layout", [None, "strided", "offset", "transposed", "sliced"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("module", [conv2d, conv2d_relu_maxpool])
@pytest.mark.parametrize(("n", "side", "outputs"), [(2, 16, 40), (3, 5, 72), (1, 2, 8)])
def test_convolutions(
    emulated: list[tuple[Any, bool]],
    n: int,
    side: int,
    outputs: int,
    module: types.ModuleType,
    last: bool,
    layout: str | None,
) -> None:
    """y lies as x does."""
    sizes = {"n": n, "channels": 64, "side": side, "outputs": outputs, "last": last}
    x, weight, bias, *_ = module.inputs(**sizes, device="cpu")
    laid = [x, weight, bias] if layout is None else [lay_out(tensor, layout) for tensor in (x, weight, bias)]
    got = module._op(*laid, [1, 1, 1, 1, 1, 1], *((True,) if module is conv2d else ()))
    wanted = module.reference(*laid, 1, 1, 1, *((True,) if module is conv2d else ()))
    assert relative(got, wanted.float()) < ROUNDED and got.stride() == wanted.stride()
    is_held = outputs <= conv2d_hopper.HELD_OUTPUTS
    assert emulated == [(conv2d_held.held_kernel if is_held else conv2d_boxes.convolution_kernel, False)]


@pytest.mark.parametrize(
    ("sizes", "geometry"),
    [
        ({"channels": 64, "outputs": 40}, [2, 1, 1, 1, 1, 1]),
        ({"channels": 60, "outputs": 40}, [1, 1, 1, 1, 1, 1]),
        ({"channels": 64, "outputs": 44}, [1, 1, 1, 1, 1, 1]),
        ({"channels": 24, "outputs": 40}, [1, 1, 1, 1, 1, 1]),
        ({"channels": 64, "outputs": 40, "dtype": torch.float32}, [1, 1, 1, 1, 1, 1]),
    ],
)
def test_other_convolutions_are_the_plain_kernels(
    sizes: dict[str, Any], geometry: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conv2d_hopper, "runs_on_hopper", lambda *tensors: True)
    x, weight, *_ = conv2d.inputs(n=1, side=8, **sizes, device="cpu")
    assert not conv2d_hopper.fits(x, weight, geometry)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("d", [64, 128, 256])
def test_attention(emulated: Any, d: int, is_causal: bool) -> None:
    q, k, v, _ = attention.inputs(1, 4, 2, 200, 270, d, is_causal, "cpu")
    got, _ = attention._attention(q, k, v, is_causal, d**-0.5)
    assert relative(got, attention.reference(q, k, v, is_causal)) < ROUNDED


@pytest.mark.parametrize("is_at_once", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("d", [64, 128])
def test_gradients_of_attention(
    emulated: list[tuple[Any, bool]],
    monkeypatch: pytest.MonkeyPatch,
    d: int,
    is_causal: bool,
    is_at_once: bool,
) -> None:
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: not is_at_once)
    q, k, v, _ = attention.inputs(1, 4, 2, 140, 170, d, is_causal, "cpu")
    grad = torch.randn_like(q)
    o, sums = attention._attention(q, k, v, is_causal, d**-0.5)
    got = attention_backward.attention_backward(grad, q, k, v, o, sums, is_causal, d**-0.5)
    leaves = [x.float().requires_grad_() for x in (q, k, v)]
    wanted = torch.autograd.grad(attention.reference(*leaves, is_causal), leaves, grad.float())
    assert max(relative(one, other) for one, other in zip(got, wanted, strict=True)) < ROUNDED
    begins_early = [waits_itself for _, waits_itself in emulated[1:]]  # after the forward pass
    assert begins_early == [False, is_at_once, is_at_once]


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Notes down the plain kernels of Mamba 2; its others are noted too, and emulated."""
    found: list[Any] = []

    def noted(*given: Any) -> torch.Tensor:
        found.append("hopper")
        with emulated_launches(mamba2_hopper, 5, 0):
            return mamba2_hopper.mamba2_on_hopper(*given)

    replaced = {"runs_on_hopper": lambda *tensors: True, "mamba2_on_hopper": noted}
    _replace(monkeypatch, mamba2, **replaced, start=lambda kernel, *_, **__: found.append(kernel))
    monkeypatch.setattr(mamba2, "launches", lambda *tensors: True)
    return found


@pytest.mark.parametrize("layout", ["contiguous", "strided", "offset", "transposed", "sliced", "expanded"])
def test_mamba2_of_any_layout_on_hopper(scans: list[Any], layout: str) -> None:
    x, dt, a, b, c, d = mamba2_inputs(2, 70, 3, 1)
    given = x, dt.half(), a.bfloat16(), b, c, d.half()
    if layout == "expanded":
        given = tuple(t[:1].expand(t.shape) for t in given)
    elif layout != "contiguous":
        given = tuple(lay_out(t, layout) for t in given)
    got = mamba2.mamba2(*given)
    assert scans == ["hopper"] and got.is_contiguous()
    assert relative(got, mamba2.reference(*(t.float() for t in given))) < ROUNDED


@pytest.mark.parametrize(
    ("heads", "p", "groups", "n", "dtype"),
    [
        (2, 64, 1, 128, torch.float32),
        (2, 128, 1, 128, torch.bfloat16),
        (2, 64, 1, 64, torch.bfloat16),
        (2, 64, 2, 128, torch.bfloat16),  # heads that share nothing
    ],
)
def test_other_sizes_of_mamba2_are_the_plain_kernels(
    scans: list[Any], heads: int, p: int, groups: int, n: int, dtype: torch.dtype
) -> None:
    sizes = {"batch": 1, "length": 70, "heads": heads, "p": p, "groups": groups, "n": n}
    mamba2.mamba2(*mamba2.inputs(**sizes, dtype=dtype, device="cpu"))
    assert scans == [mamba2._segment_kernel, mamba2._output_kernel]


def test_mamba2_on_other_gpus_is_the_plain_kernels(scans: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mamba2, "runs_on_hopper", lambda *tensors: False)
    mamba2.mamba2(*mamba2_inputs(1, 70, 2, 1))
    assert scans == [mamba2._segment_kernel, mamba2._output_kernel]
    assert mamba2.mamba2(*mamba2_inputs(1, 0, 2, 1)).shape == (1, 0, 2, 64) and len(scans) == 2


@pytest.mark.parametrize(
    ("chunks", "tiles", "segments"),
    [
        (32, 32, 4),  # as many as there are programs for
        (128, 32, 4),
        (1, 1, 1),
        (100, 1, 20),  # each costs some time of its own
        (100, 1000, 1),
    ],
)
def test_segments_of_mamba2_end_together(chunks: int, tiles: int, segments: int) -> None:
    made, each = mamba2_hopper.cut(chunks, tiles, 132)
    assert made == segments and (made - 1) * each < chunks <= made * each
