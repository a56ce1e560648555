"""Scores against examples computed by hand, and against published values."""

from __future__ import annotations

import math
import random

import pytest

from assay.records import About
from assay.report.comparison import compare_runs, explained_variance, mcnemar
from assay.report.outcomes import BEST, Outcome
from assay.report.sampling import Fit, analyse, fit_rates, independent
from assay.report.scores import (
    bootstrap,
    fast_curve,
    fast_p,
    finals,
    firsts,
    geometric_mean,
    mean_pass_at_k,
    pass_at_k,
    summarise,
    tallies,
)
from assay.report.serial import by_turn


def made(
    problem: str,
    status: str = "passed",
    best: float | None = None,
    *,
    sample: int = 0,
    turn: int = 0,
    eager: float | None = None,
    category: str = "norm",
    speed: str = "",
    cost_usd: float | None = None,
) -> Outcome:
    ratios = {} if best is None else {"eager": eager if eager is not None else best, BEST: best}
    return Outcome(
        problem, About(category, "memory", 1), False, sample, turn, status, speed, ratios, cost_usd=cost_usd
    )


def test_tries_of_one_chance_give_what_is_published() -> None:
    assert independent(0.04, 100) == pytest.approx(0.983, abs=5e-4)
    assert independent(0.5, 1) == 0.5 and independent(0.0, 1000) == 0.0


@pytest.mark.parametrize(
    "n, correct, k, chance",
    [
        (10, 0, 5, 0.0),
        (10, 10, 1, 1.0),
        (10, 3, 1, 0.3),
        (4, 2, 2, 5 / 6),  # one of six pairs is wrong twice
        (5, 1, 3, 1 - 4 / 10),  # C(4,3) of C(5,3)
        (100, 4, 100, 1.0),
    ],
)
def test_pass_at_k_is_one_minus_the_chance_of_wrong_ones_alone(
    n: int, correct: int, k: int, chance: float
) -> None:
    assert pass_at_k(n, correct, k) == pytest.approx(chance)


def test_pass_at_k_has_no_bias() -> None:
    """The mean over all ways to draw ten samples with a chance of 0.2 is what three tries give."""
    rate, n, k = 0.2, 10, 3
    drawn = [math.comb(n, c) * rate**c * (1 - rate) ** (n - c) * pass_at_k(n, c, k) for c in range(n + 1)]
    assert sum(drawn) == pytest.approx(independent(rate, k))


@pytest.mark.parametrize("n, correct, k", [(3, 4, 1), (3, 1, 4), (3, 1, 0), (3, -1, 1)])
def test_what_cannot_be_estimated_is_refused(n: int, correct: int, k: int) -> None:
    with pytest.raises(ValueError, match="cannot be told"):
        pass_at_k(n, correct, k)


def test_fast_p_is_a_share_of_all_problems_for_each_opponent() -> None:
    found = [made("a", best=0.9, eager=1.5), made("b", best=1.2, eager=2.5), made("c", "wrong")]
    assert fast_p(found, 1.0, 4) == 0.25
    assert fast_p(found, 1.0, 4, "eager") == 0.5
    assert fast_p(found, 1.2, 4) == 0.0  # more than p, not as much
    assert fast_p(found, 0.0, 4) == 0.5


def test_the_curve_is_fast_p_everywhere() -> None:
    found = [made(str(k), best=ratio) for k, ratio in enumerate((0.5, 1.0, 1.0, 2.0))] + [made("w", "wrong")]
    curve = fast_curve(found, 5)
    for p in (0.0, 0.49, 0.5, 0.99, 1.0, 1.5, 2.0, 3.0):
        at_p = [share for ratio, share in curve if ratio <= p][-1]
        assert at_p == pytest.approx(fast_p(found, p, 5))


def test_a_sample_counts_by_its_last_turn_and_a_problem_by_its_first_sample() -> None:
    found = [made("a", "wrong", turn=0), made("a", turn=1), made("a", "wrong", sample=1), made("b", sample=3)]
    assert [(one.problem, one.sample, one.turn) for one in finals(found)] == [
        ("a", 0, 1),
        ("a", 1, 0),
        ("b", 3, 0),
    ]
    assert [(one.problem, one.sample) for one in firsts(found)] == [("a", 0), ("b", 3)]
    assert tallies(found, lambda one: one.passed) == [(2, 1), (1, 1)]


def test_the_summary_adds_up() -> None:
    found = [
        made("a", best=2.0, eager=4.0, speed="faster", cost_usd=0.5),
        made("b", best=0.5, eager=1.0, speed="slower", cost_usd=0.25),
        made("c", "build_failed", cost_usd=0.25),
        made("d", "unreadable"),
    ]
    told = summarise(found, 5)
    assert (told.candidates, told.solved, told.compiled, told.correct, told.faster) == (4, 2, 0.5, 0.5, 0.25)
    assert told.fast[BEST] == {"0": 0.4, "0.5": 0.2, "0.8": 0.2, "1": 0.2, "1.5": 0.2, "2": 0.0}
    assert told.fast["eager"]["1.5"] == 0.2 and told.fast["eager"]["0.8"] == 0.4
    assert told.geometric_mean == {BEST: pytest.approx(1.0), "eager": pytest.approx(2.0)}
    assert told.cost_usd == 1.0 and told.cost_per_solved_usd == 0.5


def test_nothing_judged_is_no_division_by_zero() -> None:
    told = summarise([], 0)
    assert told.correct == 0.0 and told.fast == {} and told.cost_usd is None
    assert geometric_mean([]) is None and fast_curve([], 0) == [(0.0, 0.0)] and analyse([]) is None


def test_the_interval_of_a_mean_holds_it_and_narrows() -> None:
    few, many = bootstrap([0.0, 1.0] * 5), bootstrap([0.0, 1.0] * 200)
    assert few.low < few.value == 0.5 < few.high
    assert many.high - many.low < few.high - few.low
    assert bootstrap([0.0, 1.0] * 5) == few


def test_pass_at_k_is_asked_of_problems_with_enough_samples_alone() -> None:
    told = mean_pass_at_k([(4, 2), (1, 1)], 2)
    assert told is not None and told.value == pytest.approx(5 / 6)
    assert mean_pass_at_k([(1, 1)], 2) is None


def test_a_share_of_hopeless_problems_is_found() -> None:
    rng = random.Random(1)
    n, tally = 50, []
    for k in range(400):
        rate = 0.0 if k % 2 else rng.betavariate(2, 3)
        tally.append((n, sum(rng.random() < rate for _ in range(n))))
    fit = fit_rates(tally)
    assert fit.hopeless == pytest.approx(0.5, abs=0.04)
    assert fit.a / (fit.a + fit.b) == pytest.approx(0.4, abs=0.05)
    told = analyse(tally)
    assert told is not None
    assert independent(told.rate, 50) > 0.99 and told.fit.coverage(50) == pytest.approx(0.5, abs=0.03)
    observed = told.curve[-1] if told.curve[-1].observed else next(c for c in told.curve if c.k == 50)
    assert observed.observed is not None and observed.observed.value == pytest.approx(0.5, abs=0.03)


def test_where_all_are_solvable_no_ceiling_is_seen() -> None:
    rng = random.Random(2)
    tally = [
        (40, sum(rng.random() < rate for _ in range(40)))
        for rate in (rng.betavariate(4, 4) for _ in range(300))
    ]
    assert fit_rates(tally).hopeless < 0.02


def test_coverage_of_a_fit_is_that_of_its_rates() -> None:
    uniform = Fit(0.25, 1.0, 1.0)  # a rate between zero and one: misses k times with 1 / (k + 1)
    for k in (1, 2, 9):
        assert uniform.coverage(k) == pytest.approx(0.75 * (1 - 1 / (k + 1)))


def test_the_sample_worth_paying_for() -> None:
    told = analyse([(10, 10)] * 50 + [(10, 0)] * 50)
    assert told is not None and told.worth_k == 1 and told.near_ceiling_k == 1
    assert told.fit.ceiling == pytest.approx(0.5, abs=0.05)


def test_turns_repair_and_break() -> None:
    found = [
        made("a", "wrong", turn=0),
        made("a", best=1.0, turn=1),
        made("a", best=2.0, turn=2),
        made("b", best=1.0, turn=0),
        made("b", "crashed", turn=1),
        made("b", best=0.5, turn=2),
    ]
    first, second, third = by_turn(found)
    assert (first.correct, first.repaired, first.broken) == (0.5, 0, 0)
    assert (second.correct, second.ever_correct, second.repaired, second.broken) == (0.5, 1.0, 1, 1)
    assert third.correct == 1.0 and third.repaired == 1 and third.speed_change == pytest.approx(2.0)


@pytest.mark.parametrize("gained, lost, chance", [(0, 0, 1.0), (5, 0, 2 / 32), (3, 1, 10 / 16), (2, 2, 1.0)])
def test_flips_of_a_fair_coin(gained: int, lost: int, chance: float) -> None:
    assert mcnemar(gained, lost) == pytest.approx(chance)
    assert mcnemar(lost, gained) == pytest.approx(chance)


def test_two_runs_are_compared_on_what_both_have() -> None:
    first = [made("a", best=1.0), made("b", "wrong"), made("c", best=1.0), made("only", best=9.0)]
    second = [made("a", best=2.0), made("b", best=1.0), made("c", "wrong")]
    told = compare_runs(first, second)
    assert (told.problems, told.gained, told.lost) == (3, ("b",), ("c",))
    assert told.correct == (2 / 3, 2 / 3) and told.difference.value == 0.0
    assert told.speed is not None and told.speed.value == pytest.approx(2.0) and told.both_timed == 1


def test_variance_by_category_and_by_method() -> None:
    def run(solved: set[tuple[str, int]], which: int) -> list[Outcome]:
        return [
            made(f"{category}{k}", "passed" if (category, which) in solved else "wrong", category=category)
            for category in ("norm", "conv")
            for k in range(10)
        ]

    by_category = {("norm", 0), ("norm", 1)}
    told = explained_variance({"x": run(by_category, 0), "y": run(by_category, 1)})
    assert told is not None and told.category.value == pytest.approx(1.0) and told.method.value == 0.0
    by_method = {("norm", 0), ("conv", 0)}
    told = explained_variance({"x": run(by_method, 0), "y": run(by_method, 1)})
    assert told is not None and told.method.value == pytest.approx(1.0) and told.category.value == 0.0
    crossed = {("norm", 0), ("conv", 1)}
    told = explained_variance({"x": run(crossed, 0), "y": run(crossed, 1)})
    assert told is not None and told.interaction.value == pytest.approx(1.0)
    assert explained_variance({"x": run(crossed, 0)}) is None
