"""Every tile kernel on the GPU, against its reference: cases of the catalog, and gradients of attention."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from assay.tiles import always
from assay.tiles.catalog import KERNELS
from assay.tiles.kernel import Unsupported
from assay.tiles.kernels import attention, conv2d, conv2d_relu_maxpool, fp8_gemm, gemm, topk_route

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]
ROUNDED = 0.01
"""A unit of bf16 or two, as a part of the whole."""
MANY = 12
"""Sequences that have more tiles than a GPU has multiprocessors: 144 of two heads of 700 keys."""
CASES = [(name, number) for name, entry in KERNELS.items() for number in range(len(entry.cases))]


def off(got: torch.Tensor, wanted: torch.Tensor) -> float:
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    if not got.is_floating_point():
        return float(not torch.equal(got, wanted))
    got, wanted = got.double().nan_to_num(7.0), wanted.double().nan_to_num(7.0)
    return float((got - wanted).norm() / wanted.norm().clamp_min(1e-6))


def listed(found: Any) -> list[torch.Tensor]:
    return [found] if isinstance(found, torch.Tensor) else list(found)


@pytest.mark.parametrize(("name", "number"), CASES)
def test_is_right(name: str, number: int, device: str) -> None:
    entry = KERNELS[name]
    torch.manual_seed(0)
    given = entry.inputs(**entry.cases[number], device=device)
    with always("tiles"):
        got = listed(entry.run(*given))
    pairs = zip(got, listed(entry.reference(*given)), strict=True)
    assert max(off(one, other) for one, other in pairs) < ROUNDED


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(("experts", "k"), [(256, 8), (256, 4), (100, 2), (64, 1), (60, 6), (8, 2)])
@pytest.mark.parametrize("tokens", [3_000, 70_001])
def test_routes_of_many_programs(tokens: int, experts: int, k: int, dtype: torch.dtype, device: str) -> None:
    """Ties, both zeros, infinities, NaN of both signs and what is no normal number."""
    logits = torch.randn(tokens, experts, device=device).round(decimals=1)
    special = (math.nan, -math.nan, math.inf, -math.inf, -0.0, 1e-40, -1e-40)
    places = torch.rand(len(special), *logits.shape, device=device) < 0.05
    for value, where in zip(special, places, strict=True):
        logits.masked_fill_(where, value)
    given = logits.to(dtype)
    least = torch.full_like(given, -math.inf).view(torch.int32 if dtype == torch.float32 else torch.int16) + 1
    given[places[0]] = least.view(dtype)[places[0]]
    got, wanted = topk_route.topk_route(given, k), topk_route.reference(given, k)
    torch.testing.assert_close(got.weights, wanted.weights, equal_nan=True)
    for one, other in zip(got[1:], wanted[1:], strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("d", [64, 128])
def test_a_query_that_sees_no_key_gets_zeros(d: int, device: str) -> None:
    q = torch.randn(1, 2, 300, d, device=device).bfloat16()
    k, v = (torch.randn(1, 2, 100, d, device=device).bfloat16() for _ in range(2))
    with always("tiles"):
        got = attention.attention(q, k, v, is_causal=True)
    assert not got[:, :, :200].any()
    assert off(got, attention.reference(q, k, v, is_causal=True)) < ROUNDED


def test_a_key_that_is_not_a_number_is_seen(device: str) -> None:
    """By every query behind it."""
    q, k, v = (torch.randn(1, 1, 256, 64, device=device).bfloat16() for _ in range(3))
    for place in range(64):
        spoiled = k.clone()
        spoiled[0, 0, place] = torch.nan
        with always("tiles"):
            got = attention.attention(q, spoiled, v, is_causal=True)
        assert got[0, 0, place:].isnan().all() and not got[0, 0, :place].isnan().any()


@pytest.mark.parametrize("is_deterministic", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("d", [64, 128])
def test_gradients_of_attention(
    d: int, dtype: torch.dtype, is_causal: bool, is_deterministic: bool, device: str
) -> None:
    torch.manual_seed(0)
    q = torch.randn(MANY, 4, 700, d, device=device).to(dtype).requires_grad_()
    k, v = (torch.randn(MANY, 2, 700, d, device=device).to(dtype).requires_grad_() for _ in range(2))
    slope = torch.randn_like(q)
    wide = [x.detach().float().requires_grad_() for x in (q, k, v)]
    wanted = torch.autograd.grad(attention.reference(*wide, is_causal), wide, slope.float())
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(is_deterministic, warn_only=True)
    try:
        with always("tiles"):
            got = torch.autograd.grad(attention.attention(q, k, v, is_causal), (q, k, v), slope)
    finally:
        torch.use_deterministic_algorithms(before)
    assert max(off(x.float(), y) for x, y in zip(got, wanted, strict=True)) < ROUNDED


@pytest.mark.parametrize("scale", [0.0, -0.125, float("nan")])
def test_scales_that_kernels_cannot_take(scale: float, device: str) -> None:
    q = torch.randn(1, 2, 300, 64, device=device).bfloat16()
    with always("tiles"), pytest.raises(Unsupported, match="use a number above 0"):
        attention.attention(q, q, q, scale=scale)


@pytest.mark.parametrize("k", [384, 512])
def test_an_infinite_scale_spoils_its_rows_alone(k: int, device: str) -> None:
    """That of the last block of K, which is alone in its step or is not."""
    one = fp8_gemm.ENTRY.inputs(m=160, n=256, k=k, per_tensor=False, device=device)
    one[2][40, -1] = torch.inf
    with always("tiles"):
        got = fp8_gemm.fp8_gemm(*one)
    wanted = fp8_gemm.reference(*one)
    spoiled = torch.zeros_like(wanted, dtype=torch.bool)
    spoiled[40] = True
    assert torch.equal(~got.isfinite(), spoiled) and torch.equal(~wanted.isfinite(), spoiled)
    assert off(got[~spoiled], wanted[~spoiled]) < ROUNDED


@pytest.mark.parametrize("who", ["tiles", "faster"])
def test_more_heads_than_a_grid_has(who: str, device: str) -> None:
    q, k, v = (torch.randn(1, 66_000, 16, 64, device=device).bfloat16().requires_grad_() for _ in range(3))
    wide = [x.detach().float().requires_grad_() for x in (q, k, v)]
    exact = attention.reference(*wide)
    wanted = torch.autograd.grad(exact.sum(), wide)
    with always(who):
        with torch.no_grad():
            assert off(attention.attention(q, k, v).float(), exact.detach()) < ROUNDED
        made = attention.attention(q, k, v)
        got = torch.autograd.grad(made.sum(), (q, k, v))
    assert off(made.float(), exact) < ROUNDED
    assert max(off(x.float(), y) for x, y in zip(got, wanted, strict=True)) < ROUNDED


@pytest.mark.parametrize("activation", ["silu", "gelu", ""])
def test_second_gradients_of_a_product(activation: str, device: str) -> None:
    def seconds(product: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        a, b = (torch.randn(64, 64, device=device).bfloat16().requires_grad_() for _ in range(2))
        (first,) = torch.autograd.grad(product(a, b).float().square().sum(), a, create_graph=True)
        return list(torch.autograd.grad(first.float().square().sum(), (a, b)))

    with always("tiles"):
        by_kernel = seconds(lambda a, b: gemm.gemm(a, b, activation=activation))
    wanted = seconds(lambda a, b: gemm.ACTIVATIONS[activation](a.float() @ b.float()))
    assert max(off(x, y) for x, y in zip(by_kernel, wanted, strict=True)) < 5 * ROUNDED


@pytest.mark.parametrize("module", [conv2d, conv2d_relu_maxpool])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("outputs", [64, 136])
def test_a_convolution_of_other_images_in_the_same_place(
    module, last: bool, outputs: int, device: str
) -> None:
    """The second call is launched as the first was."""
    sizes = {"n": 5, "channels": 96, "side": 24, "outputs": outputs, "last": last}
    given = module.inputs(**sizes, dtype=torch.float16, device=device)
    for _ in range(3):
        with always("tiles"):
            got = module.ENTRY.run(*given)
        assert off(got, module.reference(*given)) < ROUNDED
        for tensor in given[:3]:
            tensor.copy_(torch.randn_like(tensor) / 4)


@pytest.mark.parametrize("module", [conv2d, conv2d_relu_maxpool])
@pytest.mark.parametrize("outputs", [64, 72])
def test_a_pixel_that_is_not_a_number_is_seen(module, outputs: int, device: str) -> None:
    """By every window over it, and by no other."""
    sizes = {"n": 2, "channels": 64, "side": 16, "outputs": outputs}
    x, weight, bias, *geometry = module.inputs(**sizes, device=device)
    x[1, 3, 6, 9] = torch.nan
    more = {"relu": True} if module is conv2d else {}
    with always("tiles"):
        got = module.ENTRY.run(x, weight, bias, *geometry, **more)
    wanted = module.reference(x, weight, bias, *geometry, **more)
    assert torch.equal(got.isnan(), wanted.isnan()) and wanted.isnan().any()
    assert off(got, wanted) < ROUNDED


def test_relu_of_a_product_that_is_not_a_number(device: str) -> None:
    a, b = (torch.randn(256, 256, device=device).bfloat16() for _ in range(2))
    a[3, 5] = torch.nan
    with always("tiles"):
        got = gemm.gemm(a, b, activation="relu")
    assert torch.equal(got.isnan().any(1), a.isnan().any(1))
