"""The tolerance: honest implementations pass, wrong ones fail, on every seed.

Honest variants are written from scratch (numpy sums one element after the other, products in other orders,
other formulas for the same function); wrong ones are the shortcuts that loose checks let pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from specifications import (
    FLOATS,
    LOG2E,
    first,
    judged,
    normal,
    online_softmax,
    product_one_by_one,
    sequential,
    tf32,
)

pytestmark = pytest.mark.usefixtures("one_thread")


# ---- honest variants: (specification, variant in float32, shapes)


def _product_backwards(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in reversed(range(0, a.shape[1], 16)):
        total = total + a[:, k : k + 16].float() @ b[k : k + 16].float()
    return total


def _welford(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    values = x.float().numpy()
    mean, m2 = np.zeros(values.shape[:-1], np.float32), np.zeros(values.shape[:-1], np.float32)
    for k in range(values.shape[-1]):
        delta = values[..., k] - mean
        mean = mean + delta / np.float32(k + 1)
        m2 = m2 + delta * (values[..., k] - mean)
    return torch.from_numpy(mean), torch.from_numpy(m2 / np.float32(values.shape[-1]))


def _layer_norm_by_welford(x: torch.Tensor) -> torch.Tensor:
    mean, variance = _welford(x)
    return (x.float() - mean[..., None]) * (1 / (variance[..., None] + 1e-5).sqrt())


def _gelu_by_tanh(x: torch.Tensor) -> torch.Tensor:
    x = x.float()
    e = (2 * 0.7978845608 * (x + 0.044715 * x * x * x)).exp()
    return 0.5 * x * (1 + (1 - 2 / (e + 1)))


ROWS = [(7, 33), (40, 64), (5, 2000), (3, 11, 129)]
ANY = [(1,), (50,), (1500,), (3, 7), (70, 100), (2, 1100)]
TWO = {"product_backwards", "product_one_by_one", "product_and_sigmoid"}
HONEST: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[tuple[int, ...]]]] = {
    "row_sum": (lambda x: x.sum(-1), sequential, ROWS),
    # Backwards: the judge's own reordered run adds forwards, and would agree with that to the bit.
    "row_sum_backwards": (lambda x: x.sum(-1), lambda x: sequential(x.flip(-1)), ROWS),
    "positive_sum_backwards": (lambda x: x.abs().sum(-1), lambda x: sequential(x.abs().flip(-1)), ROWS),
    "column_sum": (lambda x: x.sum(0), lambda x: sequential(x.T), [(900, 5), (300, 1100)]),
    "whole_mean": (lambda x: x.mean(), lambda x: sequential(x.flatten()) / x.numel(), [(9,), (80, 90)]),
    "product_backwards": (torch.mm, _product_backwards, [(37, 300, 70), (1, 500, 1), (9, 40, 1200)]),
    "product_one_by_one": (torch.mm, product_one_by_one, [(20, 500, 30), (65, 130, 65)]),
    "product_and_sigmoid": (
        lambda a, b: torch.sigmoid(a @ b * 0.1),
        lambda a, b: 1 / (1 + torch.exp2(-_product_backwards(a, b) * (0.1 * LOG2E))),
        [(33, 200, 77)],
    ),
    "variance": (lambda x: x.var(-1, correction=0), lambda x: _welford(x)[1], ROWS),
    "layer_norm": (lambda x: F.layer_norm(x, x.shape[-1:]), _layer_norm_by_welford, ROWS),
    "exp": (torch.exp, lambda x: torch.exp2(x.float() * LOG2E), ANY),
    "tanh": (torch.tanh, lambda x: 1 - 2 / ((2 * x.float()).exp() + 1), ANY),
    "rsqrt": (
        lambda x: torch.rsqrt(x.abs() + 1),
        lambda x: 1 / (x.abs() + 1).to(x.dtype).float().sqrt(),
        ANY,
    ),
    "softmax": (lambda x: x.softmax(-1), online_softmax, ROWS),
    "log_softmax": (lambda x: x.log_softmax(-1), lambda x: online_softmax(x).log(), [(7, 33), (40, 100)]),
    "gelu": (lambda x: F.gelu(x, approximate="tanh"), _gelu_by_tanh, ANY),
    "norm": (
        lambda x: x / x.norm(dim=-1, keepdim=True),
        lambda x: x.float() * (1 / sequential(x.float() ** 2).sqrt())[..., None],
        ROWS,
    ),
}
SEEDS = range(2)


def honest_ratios(name: str, dtype: torch.dtype) -> list[float]:
    """The worst ratio of every shape and seed; math.inf where one was rejected."""
    spec, variant, shapes = HONEST[name]
    ratios = []
    for shape in shapes:
        for seed in SEEDS:
            if name in TWO:
                m, k, n = shape
                inputs = [normal(m, k, seed=seed).to(dtype), normal(k, n, seed=seed + 50).to(dtype)]
            else:
                inputs = [normal(*shape, seed=seed).to(dtype)]
            report = judged(spec, inputs, variant(*inputs).to(dtype), seed)
            assert report.elements == spec(*inputs).numel()
            ratios.append(report.worst_ratio if report.ok else math.inf)
    return ratios


def test_there_are_enough_honest_comparisons() -> None:
    assert sum(len(shapes) for _, _, shapes in HONEST.values()) * len(SEEDS) * len(FLOATS) >= 300


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", HONEST)
def test_honest_variants_pass(name: str, dtype: torch.dtype) -> None:
    assert max(honest_ratios(name, dtype)) <= 1


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_exact_answer_rounded_once_is_far_inside(dtype: torch.dtype) -> None:
    for seed in range(4):
        x = normal(60, 100, seed=seed).to(dtype)
        got = x.double().softmax(-1).to(dtype)
        report = judged(lambda x: x.softmax(-1), [x], got, seed)
        assert report.ok and report.worst_ratio < 0.5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rounding_after_every_step_is_honest_in_low_precision(dtype: torch.dtype) -> None:
    """As eager torch does; a fused kernel that rounds once is honest as well."""

    def spec(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * 1.7 + 0.3) * x

    for seed in range(6):
        x = normal(50, 200, seed=seed).to(dtype)
        stepwise = (((x.float() * 1.7).to(dtype).float() + 0.3).to(dtype).float().tanh().to(dtype) * x).to(
            dtype
        )
        fused = (torch.tanh(x.float() * 1.7 + 0.3) * x.float()).to(dtype)
        assert judged(spec, [x], stepwise, seed).ok and judged(spec, [x], fused, seed).ok


# ---- wrong variants in float32: (specification, wrong answer, shapes of the inputs)


def _norm(x: torch.Tensor, eps: float) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], eps=eps)


PAIR = [(64, 256), (256, 80)]
WRONG: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[tuple[int, ...]]]] = {
    "bf16_operands": (torch.mm, lambda a, b: a.bfloat16().float() @ b.bfloat16().float(), PAIR),
    "fp16_operands": (torch.mm, lambda a, b: a.half().float() @ b.half().float(), PAIR),
    "tf32_operands": (torch.mm, lambda a, b: tf32(a) @ tf32(b), PAIR),
    "tf32_operands_deep": (torch.mm, lambda a, b: tf32(a) @ tf32(b), [(8, 4096), (4096, 8)]),
    "fp16_result": (lambda x: x * 3 + 1, lambda x: (x * 3 + 1).half().float(), [(50, 90)]),
    "fp16_softmax": (lambda x: x.softmax(-1), lambda x: x.half().softmax(-1).float(), [(50, 90)]),
    "fp16_scalar": (lambda x: (x * x).mean(), lambda x: (x * x).mean().half().float(), [(50, 90)]),
    "last_column_left_out": (
        lambda x: x.softmax(-1), lambda x: F.pad(x[:, :-1].softmax(-1), (0, 1)), [(9, 700)]
    ),
    "last_of_a_sum_left_out": (lambda x: x.sum(-1), lambda x: x[:, :-1].sum(-1), [(300, 257)]),
    "last_of_the_depth_left_out": (torch.mm, lambda a, b: a[:, :-1] @ b[:-1], PAIR),
    "last_element_stale": (lambda x: x * 2, lambda x: first(x * 2, torch.zeros_like, (-1, -1)), [(7, 301)]),
    "first_element_stale": (lambda x: x * 2, lambda x: first(x * 2, torch.zeros_like, (0, 0)), [(7, 301)]),
    "one_in_a_million": (
        lambda x: x * 2 + 9,
        lambda x: first(x * 2 + 9, lambda v: v * 1.001, (700, 123)),
        [(1000, 1000)],
    ),
    "one_slightly_wrong_row": (
        lambda x: x.softmax(-1),
        lambda x: first(x.softmax(-1), lambda v: v * 1.0001, 31),
        [(64, 200)],
    ),
    "scaled": (lambda x: x.exp(), lambda x: x.exp() * 1.01, [(40, 100)]),
    "shifted_by_one": (lambda x: x.relu(), lambda x: x.relu().roll(1, -1), [(40, 100)]),
    "linearised_sigmoid": (torch.sigmoid, lambda x: (0.21 * x + 0.5).clamp(0, 1), [(40, 100)]),
    "linearised_where_small": (
        torch.sigmoid, lambda x: torch.where(x.abs() < 0.1, 0.25 * x + 0.5, x.sigmoid()), [(40, 100)]
    ),
    "missing_eps": (lambda x: _norm(x, 1e-5), lambda x: _norm(x, 0.0), [(40, 300)]),
    "zeros": (lambda x: x.softmax(-1), torch.zeros_like, [(4, 5000)]),
    "uniform_softmax": (
        lambda x: (x * 1e-3).softmax(-1), lambda x: torch.full_like(x, 1 / 5000), [(4, 5000)]
    ),
}  # fmt: skip


def wrong_ratios(name: str, seeds: range) -> list[float]:
    """The worst ratio on each seed; 0 where the wrong answer passed."""
    spec, wrong, shapes = WRONG[name]
    ratios = []
    for seed in seeds:
        inputs = [normal(*shape, seed=seed + 1000 * k) for k, shape in enumerate(shapes)]
        report = judged(spec, inputs, wrong(*inputs), seed)
        assert report.ok == (not report.message)
        ratios.append(0.0 if report.ok else report.worst_ratio)
    return ratios


@pytest.mark.parametrize("name", WRONG)
def test_wrong_variants_fail_on_every_seed(name: str) -> None:
    assert min(wrong_ratios(name, range(1 if name == "one_in_a_million" else 4))) > 1


def _low_precision_wrong(kind: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    exact, units = a.double() @ b.double(), 1 + 8 * torch.finfo(a.dtype).eps
    if kind == "float8_operands":
        return a.to(torch.float8_e4m3fn).double() @ b.to(torch.float8_e4m3fn).double()
    if kind == "one_element":
        return first(exact, lambda v: v + 0.25 * exact.std(), (-1, -1))
    if kind == "one_row":
        return first(exact, lambda v: v * units, -1)
    return exact * units if kind == "scaled_by_eight_units" else exact.roll(1, -1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "kind", ["float8_operands", "scaled_by_eight_units", "shifted", "one_element", "one_row"]
)
def test_wrong_variants_fail_in_low_precision(kind: str, dtype: torch.dtype) -> None:
    for seed in range(4):
        a, b = normal(64, 128, seed=seed).to(dtype), normal(128, 96, seed=seed + 1).to(dtype)
        assert not judged(torch.mm, [a, b], _low_precision_wrong(kind, a, b).to(dtype), seed).ok


def test_one_percent_is_seen_in_a_float16_softmax_of_tiny_values() -> None:
    """The smallest normal float16 is no absolute tolerance: these values are hardly larger."""
    for seed in range(4):
        x = normal(4, 4000, seed=seed).half()
        exact = x.double().softmax(-1)
        assert judged(lambda x: x.softmax(-1), [x], exact.half(), seed).ok
        assert not judged(lambda x: x.softmax(-1), [x], (exact * 1.01).half(), seed).ok


def test_one_pass_variance_of_a_large_mean_fails_and_welford_passes() -> None:
    for seed in range(5):
        x = normal(30, 256, seed=seed, shift=1000.0)
        one_pass = (x * x).mean(-1) - x.mean(-1) ** 2
        assert not judged(lambda x: x.var(-1, correction=0), [x], one_pass, seed).ok
        assert judged(lambda x: x.var(-1, correction=0), [x], _welford(x)[1], seed).ok


def test_softmax_without_its_maximum_fails_on_large_logits() -> None:
    for seed in range(5):
        x = normal(20, 100, seed=seed, scale=60.0)
        naive = x.exp() / x.exp().sum(-1, keepdim=True)
        assert naive.isnan().any() and not judged(lambda x: x.softmax(-1), [x], naive, seed).ok


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("scale", [2.0**-8, 1.0])
def test_tanh_through_sigmoid_is_honest_near_zero(seed: int, scale: float) -> None:
    x = normal(32, 200, seed=seed, scale=scale)
    assert judged(torch.tanh, [x], 2 * torch.sigmoid(2 * x) - 1).ok
    assert not judged(torch.tanh, [x], torch.tanh(x.bfloat16().float())).ok
