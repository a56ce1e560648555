"""The tolerance at its edges: NaN and infinities, scales, blocks, and near-ties with their own rule."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from specifications import (
    FLOATS,
    LOG2E,
    first,
    judged,
    normal,
    online_softmax,
    product_one_by_one,
    tf32,
    yardstick,
)

from assay.correctness import tensors_of
from assay.correctness.tolerance import FloatTolerance, tile_length

pytestmark = pytest.mark.usefixtures("one_thread")


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
    assert not judged(torch.log, [x], first(right, lambda v: torch.full_like(v, wrong), (2, 17))).ok
    # The neighbours of a special value are still held to theirs.
    assert not judged(torch.log, [x], first(right, lambda v: v * 1.001, (2, 18))).ok


@pytest.mark.parametrize("dtype", FLOATS)
def test_on_the_brink_of_overflow_both_sides_are_right(dtype: torch.dtype) -> None:
    """Where the exact answer is within rounding of the largest number, one may overflow and another not."""
    info = torch.finfo(dtype)
    oracle = torch.ones(100, dtype=torch.float64)
    oracle[:4] = info.max * torch.tensor([1 + info.eps, 1 - info.eps / 4, 4.0, 0.25], dtype=torch.float64)
    right = oracle.to(dtype)
    assert right[[0, 2]].isinf().all()
    tolerance = FloatTolerance(oracle, dtype, 0, 1.0)
    for at, value, ok in (
        (0, info.max, True),
        (1, math.inf, True),
        (2, info.max, False),
        (3, math.inf, False),
    ):
        for sign in (1, -1):
            got = right.clone()
            got[at] = sign * value
            assert tolerance.compare(got, 1.0).ok == (ok and sign == 1), (at, value, sign)


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
    assert not judged(spec, [x], first(native, lambda v: torch.full_like(v, math.inf), (1, 8))).ok


def test_nan_of_the_native_run_excuses_nan_where_the_exact_answer_is_infinite() -> None:
    """float32 has infinities of both signs on the way, float64 only one: every order of adding gives NaN."""

    def spec(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x.exp() * (x - y)).sum(-1)

    x, y = normal(40, 100, seed=4), normal(40, 100, seed=5)
    x[7, :2], y[7, :2] = torch.tensor([800.0, 100.0]), torch.tensor([1.0, 200.0])
    x[9, 0] = 800.0
    native = spec(x, y)
    assert native[7].isnan() and native[9] == math.inf and spec(x.double(), y.double())[7] == math.inf
    assert judged(spec, [x, y], native).ok
    assert not judged(spec, [x, y], first(native, lambda v: torch.full_like(v, 1.0), (7,))).ok
    for at in (8, 9):
        assert not judged(spec, [x, y], first(native, lambda v: torch.full_like(v, math.nan), (at,))).ok


# ---- scale, slack, blocks, reports


def test_rows_of_different_magnitude_do_not_lend_each_other_tolerance() -> None:
    scale = torch.tensor([1e-3, 1e3]).repeat(10)[:, None]
    for seed in range(5):
        x = normal(20, 128, seed=seed) * scale
        noise = normal(20, 128, seed=seed + 99)
        spec = torch.sin if seed % 2 else (lambda x: x * 3 + x)
        assert judged(spec, [x], spec(x), seed).ok
        assert judged(lambda x: x * 3, [x], x * 3 + 1e-7 * noise * x * (scale > 1), seed).ok
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


@pytest.mark.parametrize("closely", [False, True])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("at", [0, 1023, 1024, 1100, 1123])
def test_one_element_is_held_alone_where_its_tile_would_hide_it(at: int, sign: float, closely: bool) -> None:
    """18 units off: too little for the rms of 1024 or of the last 100, too much for one element.

    The quick look and the close one, which comes after disturbed runs, must say the same.
    """
    oracle = torch.full((1124,), sign, dtype=torch.float64)
    tolerance = FloatTolerance(oracle, torch.float32, 0, 1.0)
    if closely:
        tolerance.learn_sensitivity(oracle)
    for units, passes in ((9, True), (18, False)):
        got = torch.full((1124,), sign)
        got[at] += units * 2.0**-23
        report = tolerance.compare(got, 1.0)
        assert report.ok == passes and report.wrong_elements == (not passes)


def test_a_variant_that_was_learned_before_widens_nothing() -> None:
    oracle = torch.ones(512, dtype=torch.float64)
    off = oracle + 1e-5 * normal(512, seed=1)
    got = (oracle + 4e-5 * normal(512, seed=2).sign()).float()
    ratios = []
    for times in (1, 5):
        tolerance = FloatTolerance(oracle, torch.float32, 0, 1.0)
        for variant in [off] * times + [oracle]:
            tolerance.learn(variant)
        ratios.append(tolerance.compare(got, 1.0).worst_ratio)
    assert ratios[0] == ratios[1] > 1


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
        for got in (x.softmax(-1), online_softmax(x), x.double().softmax(-1).float()):
            subject = yardstick(lambda x: x.softmax(-1), [x], seed)
            assert subject.check([got], levels=(0,)).ok and subject.check([got], levels=(1,)).ok


# ---- several precisions in one specification


@pytest.mark.parametrize("low", [torch.float16, torch.bfloat16])
def test_a_low_input_lends_no_tolerance_to_a_float32_answer(low: torch.dtype) -> None:
    for seed in range(3):
        x = normal(60, 100, seed=seed).to(low)
        exact = x.double().softmax(-1)
        for honest in (online_softmax(x.float()), exact.float()):
            assert judged(lambda x: x.float().softmax(-1), [x], honest, seed).ok
        assert not judged(lambda x: x.float().softmax(-1), [x], x.softmax(-1).float(), seed).ok


@pytest.mark.parametrize("low", [torch.float16, torch.bfloat16])
def test_what_a_specification_rounds_on_its_way_others_round_their_way(low: torch.dtype) -> None:
    def twice(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ((x.to(low) @ w.to(low)) @ w.to(low)).float()

    def chunked(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        parts = zip(x.to(low).float().split(50, 1), w.to(low).float().split(50), strict=True)
        return torch.stack([a @ b for a, b in parts]).sum(0).to(low)

    for seed in range(3):
        x, w = normal(60, 200, seed=seed), normal(200, 200, seed=seed + 100)
        assert judged(twice, [x, w], chunked(chunked(x, w), w).float(), seed).ok
        eight_bits = x.to(torch.float8_e4m3fn).float()
        assert not judged(twice, [x, w], chunked(chunked(eight_bits, w), w).float(), seed).ok


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


def test_near_ties_stay_excused_beside_an_element_that_is_wrong() -> None:
    step = torch.tensor(1 / 12.7, dtype=torch.float64).float()
    x = near_ties(120, 1000, seed=1)
    honest = (x / step).round().clamp(-128, 127).to(torch.int8)
    assert (honest != quantise(x)).sum() > 2
    honest[5, 500] += 1
    report = judged(quantise, [x], honest, 1)
    assert not report.ok and report.wrong_elements == 1 and report.mismatches[0].index == (5, 500)


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
        honest = (product_one_by_one(a, b) * 40.0).round().to(torch.int32)
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


@pytest.mark.parametrize("cut", [False, True])
def test_places_of_computed_scores_that_tie_in_the_specifications_precision(cut: bool) -> None:
    def route(x: torch.Tensor) -> torch.Tensor:
        scores = torch.sigmoid(x * 20)  # many are one in float32, and not in float64
        return scores.sort(-1, descending=True).indices[:, :4] if cut else scores.topk(4, -1).indices

    x = normal(50, 40, seed=9)
    by_logit = x.topk(4, -1).indices
    other = 39 - x.flip(-1).mul(20).sigmoid().topk(4, -1).indices
    assert not torch.equal(by_logit, route(x)) and not torch.equal(other, route(x))
    assert judged(route, [x], by_logit).ok and judged(route, [x], other).ok
    assert not judged(route, [x], by_logit.roll(1, 0)).ok
    twice = by_logit.clone()
    twice[7, 1] = twice[7, 0]
    assert not judged(route, [x], twice).ok


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


def test_what_is_left_of_large_terms_may_be_as_wrong_as_they_are() -> None:
    """Rows of other scales have small elements by the thousand; among them such remains are rare."""
    scale = torch.exp2(torch.linspace(0, 24, 256, dtype=torch.float64))[:, None]
    for seed in range(4):
        exact, first_error, second_error = (
            normal(256, 1024, seed=seed + k).double() * scale for k in range(3)
        )
        tolerance = FloatTolerance(exact, torch.float32, 0, 1.0)
        tolerance.learn(exact + 1e-6 * first_error)
        assert tolerance.compare(exact + 1e-6 * second_error, 1.0).ok
        assert not tolerance.compare(exact + 2e-5 * second_error, 1.0).ok


@pytest.mark.parametrize("masked", [-1e9, -1e20, -3.4e38])
def test_large_elements_lend_no_tolerance_to_small_ones(masked: float) -> None:
    """Scores of about 8 stand beside a mask: leaving out the product must show."""

    def scores(q: torch.Tensor, k: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        return (q @ k.t()).masked_fill(keep < 0, masked)

    for seed in range(4):
        q, k, keep = (normal(64, 64, seed=seed + 100 * part) for part in range(3))
        honest = product_one_by_one(q, k.t()).masked_fill(keep < 0, masked)
        assert judged(scores, [q, k, keep], honest, seed).ok
        skipped = torch.zeros_like(keep).masked_fill(keep < 0, masked)
        assert not judged(scores, [q, k, keep], skipped, seed).ok
        assert not judged(scores, [q, k, keep], scores(tf32(q), tf32(k), keep), seed).ok


def test_small_elements_keep_their_own_precision_in_low_ones() -> None:
    """bfloat16 scores of about one beside a mask, rounded to steps that no honest rounding makes."""

    def scores(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        return (x * 2).masked_fill(keep < 0, -1e9)

    for seed in range(4):
        x, keep = (normal(64, 64, seed=seed + 100 * part).bfloat16() for part in range(2))
        right = scores(x, keep)
        assert judged(scores, [x, keep], right, seed).ok
        assert not judged(scores, [x, keep], (right / 0.15).round() * 0.15, seed).ok
        assert not judged(scores, [x, keep], right.masked_fill(right.abs() < 0.08, 0.0), seed).ok


def test_a_small_element_is_held_though_it_stands_alone() -> None:
    def beside(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x * 1e10, x.mean()[None]])

    for seed in range(4):
        x = normal(1000, seed=seed)
        assert judged(beside, [x], torch.cat([x * 1e10, x.flip(0).mean()[None]]), seed).ok
        assert not judged(beside, [x], torch.cat([x * 1e10, torch.zeros(1)]), seed).ok


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sigmoids_may_be_made_of_numbers_near_one(dtype: torch.dtype) -> None:
    for seed in range(4):
        x = (normal(20, 128, seed=seed) * 8).to(dtype)
        made = (0.5 * torch.tanh(x.float() / 2) + 0.5).to(dtype)
        assert judged(torch.sigmoid, [x], made, seed).ok
        assert not judged(torch.sigmoid, [x], made + 2e-3 * x.abs().sign(), seed).ok


@pytest.mark.parametrize(
    ("tiles", "beyond", "ok"),
    [(1, 1.5, True), (2, 1.9, True), (9, 1.5, False), (1, 2.5, False), (300, 1.1, False)],
)
def test_a_tile_in_ten_thousand_may_be_slightly_less_precise(tiles: int, beyond: float, ok: bool) -> None:
    oracle = normal(40000, 64, seed=3).double()
    tolerance = FloatTolerance(oracle, torch.float32, 0, 1.0, by_size=False)
    noise = 3e-7 * normal(40000, 64, seed=4).sign().double()
    tolerance.learn(oracle + noise)
    limit = tolerance._tile_limit(next(tolerance._spans()), 1.0)
    got = oracle + noise
    got[:tiles] = oracle[:tiles] + beyond * limit[:tiles, None] * noise[:tiles].sign()
    assert tolerance.compare(oracle + noise, 1.0).ok
    report = tolerance.compare(got, 1.0)
    assert report.ok is ok and report.wrong_elements == 0
    assert (report.worst_ratio <= 1) is ok
