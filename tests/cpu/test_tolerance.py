"""The tolerance: honest implementations pass, wrong ones fail, on every seed; near-ties have their own rule.

Honest variants are written from scratch (numpy sums one element after the other, products in other orders,
other formulas for the same function); wrong ones are the shortcuts that loose checks let pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from assay.correctness import Reference, Report, Yardstick, tensors_of
from assay.correctness.tolerance import FloatTolerance, tile_length
from assay.problems import Case, Precision

CPU = torch.device("cpu")
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
Tensors = list[torch.Tensor]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """These tensors are small: more threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


class Given:
    """An instance of one function on given inputs."""

    case = Case("given")
    init_args: tuple[Any, ...] = ()

    def __init__(self, function: Callable[..., Any], inputs: Tensors) -> None:
        self._function, self._inputs = function, inputs

    def build_reference(self, seed: int, device: torch.device) -> torch.nn.Module:
        return Function(self._function)

    def make_inputs(self, seed: int, device: torch.device) -> Tensors:
        return self._inputs


def yardstick(spec: Callable[..., Any], inputs: Tensors, seed: int = 0, slack: float = 1.0) -> Yardstick:
    precision = Precision(slack=slack)
    return Yardstick(Reference(Given(spec, inputs), precision, CPU, 0), inputs, precision, seed)  # type: ignore[arg-type]


def judged(spec: Callable[..., Any], inputs: Tensors, got: Any, seed: int = 0) -> Report:
    """The widest check, as the judge makes it before it says wrong."""
    outputs = tensors_of(got)
    subject = yardstick(spec, inputs, seed)
    for mine, theirs in zip(outputs, subject.native, strict=True):
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
    return subject.check(outputs)


def normal(*shape: int, seed: int, scale: float = 1.0, shift: float = 0.0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale + shift


def sequential(x: torch.Tensor) -> torch.Tensor:
    """Float32 sums over the last dimension, strictly one after the other."""
    return torch.from_numpy(np.cumsum(x.float().numpy(), axis=-1, dtype=np.float32)[..., -1].copy())


# ---- honest variants: (specification, variant in float32, shapes)


def _product_backwards(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in reversed(range(0, a.shape[1], 16)):
        total = total + a[:, k : k + 16].float() @ b[k : k + 16].float()
    return total


def _product_one_by_one(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = np.zeros((a.shape[0], b.shape[1]), dtype=np.float32)
    for k in range(a.shape[1]):
        total += np.outer(a[:, k].float().numpy(), b[k].float().numpy())
    return torch.from_numpy(total)


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


def _online_softmax(x: torch.Tensor) -> torch.Tensor:
    largest = torch.full(x.shape[:-1], -math.inf)
    total = torch.zeros(x.shape[:-1])
    for start in range(0, x.shape[-1], 32):
        part = x[..., start : start + 32].float()
        new = torch.maximum(largest, part.amax(-1))
        total = total * (largest - new).exp() + (part - new[..., None]).exp().sum(-1)
        largest = new
    return (x.float() - largest[..., None]).exp() / total[..., None]


def _gelu_by_tanh(x: torch.Tensor) -> torch.Tensor:
    x = x.float()
    e = (2 * 0.7978845608 * (x + 0.044715 * x * x * x)).exp()
    return 0.5 * x * (1 + (1 - 2 / (e + 1)))


ROWS = [(7, 33), (40, 64), (5, 2000), (3, 11, 129)]
ANY = [(1,), (50,), (1500,), (3, 7), (70, 100), (2, 1100)]
TWO = {"product_backwards", "product_one_by_one", "product_and_sigmoid"}
LOG2E = 1.4426950408889634
HONEST: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[tuple[int, ...]]]] = {
    "row_sum": (lambda x: x.sum(-1), sequential, ROWS),
    # Backwards: the judge's own reordered run adds forwards, and would agree with that to the bit.
    "row_sum_backwards": (lambda x: x.sum(-1), lambda x: sequential(x.flip(-1)), ROWS),
    "positive_sum_backwards": (lambda x: x.abs().sum(-1), lambda x: sequential(x.abs().flip(-1)), ROWS),
    "column_sum": (lambda x: x.sum(0), lambda x: sequential(x.T), [(900, 5), (300, 1100)]),
    "whole_mean": (lambda x: x.mean(), lambda x: sequential(x.flatten()) / x.numel(), [(9,), (80, 90)]),
    "product_backwards": (torch.mm, _product_backwards, [(37, 300, 70), (1, 500, 1), (9, 40, 1200)]),
    "product_one_by_one": (torch.mm, _product_one_by_one, [(20, 500, 30), (65, 130, 65)]),
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
    "softmax": (lambda x: x.softmax(-1), _online_softmax, ROWS),
    "log_softmax": (lambda x: x.log_softmax(-1), lambda x: _online_softmax(x).log(), [(7, 33), (40, 100)]),
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


def tf32(x: torch.Tensor) -> torch.Tensor:
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


def _first(x: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor], at: Any) -> torch.Tensor:
    out = x.clone()
    out[at] = change(out[at])
    return out


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
    "last_element_stale": (lambda x: x * 2, lambda x: _first(x * 2, torch.zeros_like, (-1, -1)), [(7, 301)]),
    "first_element_stale": (lambda x: x * 2, lambda x: _first(x * 2, torch.zeros_like, (0, 0)), [(7, 301)]),
    "one_in_a_million": (
        lambda x: x * 2 + 9,
        lambda x: _first(x * 2 + 9, lambda v: v * 1.001, (700, 123)),
        [(1000, 1000)],
    ),
    "one_slightly_wrong_row": (
        lambda x: x.softmax(-1),
        lambda x: _first(x.softmax(-1), lambda v: v * 1.0001, 31),
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
        return _first(exact, lambda v: v + 0.25 * exact.std(), (-1, -1))
    if kind == "one_row":
        return _first(exact, lambda v: v * units, -1)
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


# ---- NaN, infinities, zeros


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_number_may_not_become_nan_or_infinite(bad: float, dtype: torch.dtype) -> None:
    for shape, at in (((3, 100), (1, 50)), ((2000,), (1999,)), ((1,), (0,))):
        x = normal(*shape, seed=1).to(dtype)
        got = (x * 2).clone()
        got[at] = bad
        report = judged(lambda x: x * 2, [x], got)
        assert not report.ok and report.wrong_elements == 1 and report.worst_ratio == math.inf
        assert report.mismatches[0].index == at
    everywhere = torch.full_like(x, bad)
    assert not judged(lambda x: x * 2, [x], everywhere).ok


@pytest.mark.parametrize(
    ("special", "wrong"), [(-1.0, 0.0), (-1.0, -math.inf), (0.0, -100.0), (0.0, math.inf)]
)
def test_nan_and_infinity_must_stand_where_the_specification_has_them(special: float, wrong: float) -> None:
    x = normal(4, 100, seed=2).abs() + 0.1
    x[2, 17] = special
    right = torch.log(x)
    assert not torch.isfinite(right[2, 17])
    assert judged(torch.log, [x], right).ok
    assert not judged(torch.log, [x], _first(right, lambda v: torch.full_like(v, wrong), (2, 17))).ok
    # The neighbours of a special value are still held to theirs.
    assert not judged(torch.log, [x], _first(right, lambda v: v * 1.001, (2, 18))).ok


def test_a_masked_row_does_not_excuse_nan() -> None:
    """A mask of minus infinities goes through a rounded addition: noise there must not turn it into NaN."""
    mask = torch.full((40, 40), -math.inf).triu(1)
    for seed in range(4):
        x = normal(40, 40, seed=seed)
        right = (x + mask).softmax(-1)
        assert judged(lambda x: (x + mask).softmax(-1), [x], right, seed).ok
        bad = right.clone()
        bad[5] = math.nan
        assert not judged(lambda x: (x + mask).softmax(-1), [x], bad, seed).ok


def test_negative_zero_is_zero() -> None:
    x = normal(4, 100, seed=3)
    got = torch.where(x > 0, x, -0.0)
    assert torch.signbit(got[got == 0]).all()
    assert judged(torch.relu, [x], got).ok


def test_overflow_of_the_native_run_excuses_overflow_only_there() -> None:
    """float32 overflows on the way, float64 does not: a candidate may overflow too, but only there."""

    def spec(x: torch.Tensor) -> torch.Tensor:
        return (x.exp() * x.exp()).log()

    x = normal(3, 100, seed=4)
    x[1, 7] = 60.0
    native = spec(x)
    assert torch.isinf(native[1, 7]) and judged(spec, [x], native).ok
    assert not judged(spec, [x], _first(native, lambda v: torch.full_like(v, math.inf), (1, 8))).ok


# ---- scale, slack, blocks, reports


def test_rows_of_different_magnitude_do_not_lend_each_other_tolerance() -> None:
    scale = torch.tensor([1e-3, 1e3]).repeat(10)[:, None]
    for seed in range(5):
        x = normal(20, 128, seed=seed) * scale
        noise = normal(20, 128, seed=seed + 99)
        spec = torch.sin if seed % 2 else (lambda x: x * 3 + x)
        assert judged(spec, [x], spec(x), seed).ok
        assert judged(lambda x: x * 3, [x], x * 3 + 1e-5 * noise * (scale > 1), seed).ok
        report = judged(lambda x: x * 3, [x], x * 3 + 1e-6 * noise * (scale < 1), seed)
        assert not report.ok and {m.index[0] % 2 for m in report.mismatches} == {0}


def test_slack_widens_in_proportion() -> None:
    x = normal(20, 100, seed=5)
    got = x * 3 * (1 + 1e-5)
    ratios = {
        s: yardstick(lambda x: x * 3, [x], slack=s).check([got]).worst_ratio for s in (1.0, 4.0, 1000.0)
    }
    assert ratios[1.0] > 1 and ratios[1000.0] < 1
    assert ratios[4.0] == pytest.approx(ratios[1.0] / 4, rel=0.01)


def test_got_and_oracle_are_not_interchangeable() -> None:
    """Tolerance belongs to the expected value: an absurdly large answer does not excuse itself."""
    x = torch.full((300,), 1e-3)
    report = judged(lambda x: x * 2, [x], torch.full((300,), 1e6))
    assert not report.ok and report.wrong_elements == 300
    assert all(m.got == 1e6 and m.expected == pytest.approx(2e-3) for m in report.mismatches)
    assert all(0 < m.tolerance < 1e-6 for m in report.mismatches)


def test_every_output_is_checked() -> None:
    def spec(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return x * 2, x.sum(-1), x.argmax(-1)

    x = normal(9, 70, seed=6)
    right = list(spec(x))
    assert judged(spec, [x], right).ok
    for k, change in enumerate((lambda t: t * 1.01, lambda t: t + 1, lambda t: (t + 1) % 70)):
        wrong = [change(t) if j == k else t for j, t in enumerate(right)]
        report = judged(spec, [x], wrong)
        assert not report.ok and report.message.startswith(f"output {k}: ") and ";" not in report.message
        assert {m.output for m in report.mismatches} == {k}


def test_a_cluster_of_small_errors_fails_where_each_alone_would_pass() -> None:
    x = normal(40, 256, seed=7)
    # 12 units: inside the element test (4 ulp + 12 times the honest error), outside the tile test.
    signs = normal(40, 256, seed=8).sign()
    tilted = (x.double() * 3 * (1 + 12 * 2.0**-23 * signs)).float()
    report = judged(lambda x: x * 3, [x], tilted)
    assert not report.ok and report.wrong_elements == 0 and "less precise" in report.message
    assert report.mismatches
    alone = torch.where(torch.arange(x.numel()).reshape(x.shape) % 256 == 3, tilted, x * 3)
    assert judged(lambda x: x * 3, [x], alone).ok


@pytest.mark.parametrize(
    "shape", [(), (1,), (63,), (65,), (1025,), (5, 10), (3, 64), (3, 1024), (2, 1025), (7, 0)]
)
def test_every_position_is_in_some_tile(shape: tuple[int, ...]) -> None:
    oracle = torch.ones(shape, dtype=torch.float64)
    tolerance = FloatTolerance(oracle, torch.float32, 0, 1.0)
    assert tolerance.compare(torch.ones(shape), 1.0).ok
    count = oracle.numel()
    assert 1 <= tile_length(oracle.shape) <= max(count, 1)
    for at in {0, count // 2, count - 1, count - count % 64} & set(range(count)):
        got = torch.ones(count)
        got[at] = 1.0001
        report = tolerance.compare(got.reshape(shape), 1.0)
        assert not report.ok and report.wrong_elements == 1
        assert np.ravel_multi_index(report.mismatches[0].index, shape or (1,)) == at if shape else True


@pytest.mark.parametrize("at", [0, 1023, 1024, 1100, 1123])
def test_one_element_is_held_alone_where_its_tile_would_hide_it(at: int) -> None:
    """18 units off: too little for the rms of 1024 or of the last 100, too much for one element."""
    tolerance = FloatTolerance(torch.ones(1124, dtype=torch.float64), torch.float32, 0, 1.0)
    for units, passes in ((9, True), (18, False)):
        got = torch.ones(1124)
        got[at] += units * 2.0**-23
        report = tolerance.compare(got, 1.0)
        assert report.ok == passes and report.wrong_elements == (not passes)


def test_blocks_cover_the_whole_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.correctness.tolerance.BLOCK_ELEMENTS", 600)
    x = normal(5, 700, seed=9)
    subject = yardstick(lambda x: x * 3, [x])
    assert subject.check([x * 3]).ok
    for flat in (0, 699, 700, 1399, 2048, 3499):
        got = (x * 3).flatten()
        got[flat] += 1
        report = subject.check([got.reshape(5, 700)])
        assert report.wrong_elements == 1 and report.mismatches[0].index == (flat // 700, flat % 700)


def test_what_passes_at_level_0_passes_at_level_1() -> None:
    for seed in range(6):
        x = normal(30, 90, seed=seed)
        for got in (x.softmax(-1), _online_softmax(x), x.double().softmax(-1).float()):
            subject = yardstick(lambda x: x.softmax(-1), [x], seed)
            assert subject.check([got], levels=(0,)).ok and subject.check([got], levels=(1,)).ok


# ---- near-ties


def quantise(x: torch.Tensor) -> torch.Tensor:
    return (x * 12.7).round().clamp(-128, 127).to(torch.int8)


def fake_quantise(x: torch.Tensor) -> torch.Tensor:
    return (x * 12.7).round().clamp(-128, 127) / 12.7


def near_ties(*shape: int, seed: int) -> torch.Tensor:
    """One input in every row lies within an ulp or two of a rounding threshold."""
    x = normal(*shape, seed=seed, scale=3.0)
    halves = ((x * 12.7).floor() + 0.5) / 12.7
    ulps = torch.randint(-1, 2, shape, generator=torch.Generator().manual_seed(seed))
    tied = (halves.view(torch.int32) + ulps.int()).view(torch.float32)
    return torch.where(torch.arange(shape[-1]) == 7, tied, x)


def test_quantising_may_flip_at_near_ties_and_nowhere_else() -> None:
    step = torch.tensor(1 / 12.7, dtype=torch.float64).float()
    flips = 0
    for seed in range(4):
        x = near_ties(120, 1000, seed=seed)
        honest = (x / step).round().clamp(-128, 127)
        flips += int((honest != quantise(x)).sum())
        assert judged(quantise, [x], honest.to(torch.int8), seed).ok
        assert judged(fake_quantise, [x], honest * step, seed).ok
        hit = normal(120, 1000, seed=seed + 1) > 2.33
        off = torch.where(hit, quantise(x) - 1, quantise(x))
        assert not judged(quantise, [x], off, seed).ok
        assert not judged(fake_quantise, [x], fake_quantise(x) - hit / 12.7, seed).ok
        assert not judged(fake_quantise, [x], x, seed).ok
    assert flips > 20


def test_a_single_step_off_away_from_ties_fails() -> None:
    for seed in range(4):
        x = (torch.arange(4000).reshape(40, 100) % 200 - 100 + 0.1) / 12.7
        for spec, step in ((quantise, 1), (fake_quantise, 1 / 12.7)):
            got = spec(x).clone()
            got[20, 50] += step
            assert not judged(spec, [x], got, seed).ok


def test_quantising_a_product_may_flip_with_its_order() -> None:
    def spec(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a @ b * 40.0).round().to(torch.int32)

    flips = 0
    for seed in range(4):
        a, b = normal(150, 300, seed=seed), normal(300, 150, seed=seed + 10)
        honest = (_product_one_by_one(a, b) * 40.0).round().to(torch.int32)
        flips += int((honest != spec(a, b)).sum())
        assert judged(spec, [a, b], honest, seed).ok
        assert not judged(spec, [a, b], (tf32(a) @ tf32(b) * 40.0).round().to(torch.int32), seed).ok
    assert flips > 0


def _scores(x: torch.Tensor) -> torch.Tensor:
    return (x * 0.37 + 0.11).exp()


def _scores_honestly(x: torch.Tensor) -> torch.Tensor:
    return torch.exp2((x.double() * 0.37 + 0.11).float() * LOG2E)


def twins(rows: int, columns: int, seed: int) -> torch.Tensor:
    """Rows whose two largest values are neighbours."""
    x = normal(rows, columns, seed=seed)
    order = x.argsort(-1)
    top = x.gather(-1, order[:, -1:])
    return x.scatter(-1, order[:, -2:-1], torch.nextafter(top, torch.tensor(0.0)))


@pytest.mark.parametrize("kind", ["argmax", "topk", "sort"])
def test_index_of_near_equals_may_differ_but_no_other(kind: str) -> None:
    def pick(scores: torch.Tensor) -> Any:
        if kind == "argmax":
            return scores.argmax(-1)
        return tuple(scores.topk(3, -1)) if kind == "topk" else tuple(scores.sort(-1))

    changed = 0
    for seed in range(6):
        x = twins(60, 80, seed)
        honest = tensors_of(pick(_scores_honestly(x)))
        native = tensors_of(pick(_scores(x)))
        changed += int((honest[-1] != native[-1]).sum())
        assert judged(lambda x: pick(_scores(x)), [x], honest, seed).ok
        indices = native[-1].clone()
        indices[3] = (indices[3] + 1) % 80
        assert not judged(lambda x: pick(_scores(x)), [x], [*native[:-1], indices], seed).ok
        if kind != "argmax":
            assert not judged(lambda x: pick(_scores(x)), [x], [native[0] * 1.001, native[1]], seed).ok
    assert changed > 0


def test_exact_selections_have_no_ties_to_flip() -> None:
    """An index of the inputs themselves is exact where they are well apart."""
    x = torch.stack(
        [torch.randperm(50, generator=torch.Generator().manual_seed(k)).float() for k in range(20)]
    )
    right = x.argmax(-1)
    assert judged(lambda x: x.argmax(-1), [x], right).ok
    wrong = right.clone()
    wrong[7] = (wrong[7] + 1) % 50
    report = judged(lambda x: x.argmax(-1), [x], wrong)
    assert not report.ok and report.wrong_elements == 1 and report.mismatches[0].index == (7,)


def test_booleans_and_integers_are_exact() -> None:
    x = torch.arange(-50, 50)
    assert judged(lambda x: (x // 3, x > 7), [x], [x // 3, x > 7]).ok
    assert not judged(lambda x: (x // 3, x > 7), [x], [x // 3, x > 8]).ok
    assert not judged(lambda x: (x // 3, x > 7), [x], [(x + 1) // 3, x > 7]).ok


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("scale", [2.0**-8, 1.0])
def test_tanh_through_sigmoid_is_honest_near_zero(seed: int, scale: float) -> None:
    x = normal(32, 200, seed=seed, scale=scale)
    assert judged(torch.tanh, [x], 2 * torch.sigmoid(2 * x) - 1).ok
    assert not judged(torch.tanh, [x], torch.tanh(x.bfloat16().float())).ok
