"""Gradients of attention as fused kernels make them, and as wrong ones do.

The honest kernel here is the one of every flash attention: the mean slope of a row comes from the outputs as
they were stored, weights and their gradients are rounded before the products that take them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from specifications import Tensors, judged, yardstick

from assay.problems.distributions import redraw

pytestmark = pytest.mark.usefixtures("one_thread")
HALVES = (torch.bfloat16, torch.float16)
SIZES = ((2, 96, 64), (1, 33, 64), (3, 1, 64))
SEEDS = (0, 3)


def gradients(attend: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def spec(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, incoming: torch.Tensor) -> Any:
        with torch.inference_mode(False), torch.enable_grad():
            leaves = [x.detach().requires_grad_() for x in (q, k, v)]
            return torch.autograd.grad(attend(*leaves), leaves, incoming)

    return spec


def library(causal: bool) -> Callable[..., Any]:
    return gradients(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal))


def by_hand(causal: bool) -> Callable[..., Any]:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = q @ k.mT * q.shape[-1] ** -0.5
        scores = scores.masked_fill(~seen(scores, 0), -torch.inf) if causal else scores
        return scores.softmax(-1, dtype=torch.float32).to(q.dtype) @ v

    return gradients(attend)


def seen(scores: torch.Tensor, ahead: int) -> torch.Tensor:
    return torch.ones_like(scores, dtype=torch.bool).tril(ahead)


def fused(
    *inputs: torch.Tensor, causal: bool = False, wrong: str = "", stored: torch.dtype | None = None
) -> Tensors:
    """Float32 within; `stored` is what outputs, weights and their gradients are rounded to."""
    dtype = inputs[0].dtype
    stored = stored or dtype
    q, k, v, incoming = (x.float() for x in inputs)
    scale = q.shape[-1] ** -0.5
    scores = q @ k.mT * scale
    ahead = 1 if wrong == "mask off by one" else 0
    hidden = ~seen(scores, 0) if causal else torch.zeros_like(scores, dtype=torch.bool)
    masked = scores.masked_fill(hidden, -torch.inf)
    outputs = (masked.softmax(-1).to(stored).float() @ v).to(stored).float()
    outputs = outputs.bfloat16().float() if wrong == "rounded outputs" else outputs
    sums = masked.amax(-1, keepdim=True) if wrong == "not normalised" else masked.logsumexp(-1, keepdim=True)
    hidden = hidden & ~seen(scores, ahead)
    weights = (scores - sums).exp().masked_fill(hidden, 0.0)
    mean = (incoming * outputs).sum(-1, keepdim=True)
    mean = {"no mean": 0.0 * mean, "mean of another row": mean.roll(1, -2)}.get(wrong, mean)
    slope = (weights * (incoming @ v.mT - mean)).to(torch.float8_e4m3fn if wrong == "eight bits" else stored)
    dq = slope.float() @ k * (1.0 if wrong == "no scale" else scale)
    dk = slope.float().mT @ q * scale
    dv = weights.to(stored).float().mT @ incoming
    dq = torch.zeros_like(dq) if wrong == "zeros" else dq
    made = (dq, dv, dk) if wrong == "exchanged" else (dq, dk, dv)
    return [x.to(dtype) for x in made]


def drawn(contents: str, dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> Tensors:
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.empty(shape, dtype=dtype) for _ in range(4)]
    for tensor in tensors:
        redraw(tensor, "normal" if contents == "peaked" else contents, generator)
    if contents == "peaked":
        tensors[0] *= 8
    return tensors


CONTENTS = [(torch.bfloat16, name) for name in ("normal", "peaked", "mixture", "row_scaled", "sparse")]
CONTENTS += [(torch.float16, name) for name in ("normal", "peaked", "sparse")]
"""Weights and slopes of the others leave float16 at either end, which is another question."""
WRONG = ("no mean", "mean of another row", "no scale", "not normalised", "exchanged", "eight bits", "zeros")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dtype", "contents"), CONTENTS)
def test_fused_gradients_are_honest(dtype: torch.dtype, contents: str, causal: bool) -> None:
    for seed in SEEDS:
        for shape in SIZES:
            inputs = drawn(contents, dtype, shape, seed)
            got = fused(*inputs, causal=causal)
            for spec in (library, by_hand)[: 2 if seed == 0 else 1]:
                report = judged(spec(causal), inputs, got, seed)
                assert report.ok, (spec.__name__, shape, seed, report)


@pytest.mark.parametrize("value", [0.3, 1.0, 40.0])
@pytest.mark.parametrize("dtype", HALVES)
def test_gradients_that_vanish_may_be_what_rounding_leaves(dtype: torch.dtype, value: float) -> None:
    constant = [torch.full((2, 50, 64), value, dtype=dtype) for _ in range(4)]
    for causal in (False, True):
        assert judged(library(causal), constant, fused(*constant, causal=causal)).ok
    lone = drawn("normal", dtype, (4, 1, 64), 1)
    assert judged(library(False), lone, fused(*lone)).ok


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dtype", "contents"), CONTENTS)
def test_wrong_gradients_fail(dtype: torch.dtype, contents: str, causal: bool) -> None:
    for seed in SEEDS:
        inputs = drawn(contents, dtype, SIZES[0], seed)
        subject = yardstick(library(causal), inputs, seed)
        for wrong in (*WRONG, *(["mask off by one"] if causal else [])):
            assert not subject.check(fused(*inputs, causal=causal, wrong=wrong)).ok, (wrong, seed)


@pytest.mark.parametrize("contents", ["normal", "mixture"])
def test_what_is_returned_in_float32_is_made_of_outputs_in_float32(contents: str) -> None:
    def of_float32(*inputs: torch.Tensor) -> Any:
        return library(False)(*(x.float() for x in inputs))

    for seed in SEEDS:
        halves = drawn(contents, torch.bfloat16, SIZES[0], seed)
        inputs = [x.float() for x in halves]
        for given, spec in ((inputs, library(False)), (halves, of_float32)):
            subject = yardstick(spec, given, seed)
            assert subject.check(fused(*inputs)).ok
            assert not subject.check(fused(*inputs, stored=torch.bfloat16)).ok
            assert not subject.check(fused(*inputs, wrong="rounded outputs")).ok


@pytest.mark.parametrize("dtype", (*HALVES, torch.float32))
def test_without_attention_the_mean_slope_is_that_of_the_slopes(dtype: torch.dtype) -> None:
    def spec(x: torch.Tensor, incoming: torch.Tensor) -> Any:
        with torch.inference_mode(False), torch.enable_grad():
            leaf = x.detach().requires_grad_()
            return torch.autograd.grad(leaf.softmax(-1), leaf, incoming)

    def made(x: torch.Tensor, incoming: torch.Tensor, mean: torch.Tensor) -> Tensors:
        return [(x.float().softmax(-1) * (incoming.float() - mean)).to(dtype)]

    unit = torch.finfo(dtype).eps
    for seed in SEEDS:
        x, incoming = drawn("normal", dtype, (40, 200), seed)[:2]
        subject = yardstick(spec, [x, incoming], seed)
        off = 8 * unit * incoming.float().norm(dim=-1, keepdim=True)
        mean = (x.float().softmax(-1) * incoming.float()).sum(-1, keepdim=True)
        assert subject.check(made(x, incoming, mean)).ok
        for wrong in (0 * mean, mean.roll(1, 0), mean + off):
            assert not subject.check(made(x, incoming, wrong)).ok


def test_rows_that_see_nothing_are_no_trouble() -> None:
    inputs = drawn("normal", torch.bfloat16, SIZES[1], 0)
    mask = torch.ones(33, 33, dtype=torch.bool).tril(-1)  # the first row sees nothing
    spec = gradients(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    right = list(spec(*inputs))
    subject = yardstick(spec, inputs)
    assert subject.check(right, levels=(1,)).ok
    assert not subject.check([right[0].roll(1, 1), *right[1:]]).ok
    assert not subject.check([torch.full_like(right[0], torch.nan), *right[1:]]).ok
