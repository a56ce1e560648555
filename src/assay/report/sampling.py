"""What more samples can buy: success rates per problem, with a share of problems that no number of them
solves.

If every problem were solved with the same chance p, k samples would solve 1 - (1 - p)^k of them: 98 % at p =
4 % and k = 100. They do not: most problems of a run are easy or out of reach. The fit lets rates vary from
problem to problem (a beta distribution) and a share of them be exactly zero: that share is the ceiling's
distance from one.

Not covered: rates that change from sample to sample.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from assay.report.scores import Estimate, mean_pass_at_k

LEAST_GAIN = 0.01
NEAR_CEILING = 0.95
MOST_K = 10_000
_STEPS = 7
_ROUNDS = 7


@dataclass(frozen=True, slots=True)
class Fit:
    """Rates of success over problems."""

    hopeless: float
    """The share of problems at exactly zero."""
    a: float
    b: float
    """Of the beta distribution of the others' rates."""

    @property
    def ceiling(self) -> float:
        """What no number of samples exceeds."""
        return 1.0 - self.hopeless

    def coverage(self, k: int) -> float:
        """The share of problems that k samples solve."""
        missed = math.exp(_log_beta(self.a, self.b + k) - _log_beta(self.a, self.b))
        return self.ceiling * (1.0 - missed)


@dataclass(frozen=True, slots=True)
class Coverage:
    """One number of samples."""

    k: int
    observed: Estimate | None
    """pass@k; None where no problem has as many samples."""
    fitted: float
    independent: float
    """If every problem had the mean rate."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """What the samples of a run say about more of them."""

    problems: int
    samples: int
    """The most of any problem."""
    rate: float
    fit: Fit
    curve: tuple[Coverage, ...]
    worth_k: int
    """The last sample that is expected to solve one problem in a hundred more."""
    near_ceiling_k: int | None
    """Where 95 % of the ceiling is reached; None if that is far beyond."""


def independent(rate: float, k: int) -> float:
    """What k tries give, each with the same chance."""
    return 1.0 - (1.0 - rate) ** k


def analyse(tally: Sequence[tuple[int, int]]) -> Sampling | None:
    """None where no problem has two samples: one says nothing about more."""
    most = max((n for n, _ in tally), default=0)
    if most < 2:
        return None
    rate = sum(correct / n for n, correct in tally) / len(tally)
    fit = fit_rates(tally)
    ks = sorted({k for k in (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000) if k <= 10 * most} | {most})
    curve = tuple(
        Coverage(k, mean_pass_at_k(tally, k) if k <= most else None, fit.coverage(k), independent(rate, k))
        for k in ks
    )
    gains = (k for k in range(1, MOST_K) if fit.coverage(k + 1) - fit.coverage(k) < LEAST_GAIN)
    near = (k for k in range(1, MOST_K) if fit.coverage(k) >= NEAR_CEILING * fit.ceiling)
    return Sampling(len(tally), most, rate, fit, curve, next(gains, MOST_K), next(near, None))


def fit_rates(tally: Sequence[tuple[int, int]]) -> Fit:
    """The likeliest fit: a grid over the share at zero, the mean of the others and how much they vary, made
    finer around its best point a few times. The likelihood has a single hill over these three.
    """
    counted = Counter(tally)
    spans = [(0.0, 0.98), (0.005, 0.995), (math.log(0.1), math.log(1e3))]
    best = (-math.inf, Fit(0.0, 1.0, 1.0), (0.0, 0.5, 0.0))
    for _ in range(_ROUNDS):
        for hopeless in _grid(*spans[0]):
            for mean in _grid(*spans[1]):
                for spread in _grid(*spans[2]):
                    strength = math.exp(spread)
                    fit = Fit(hopeless, mean * strength, (1.0 - mean) * strength)
                    best = max(
                        best, (_log_likelihood(fit, counted), fit, (hopeless, mean, spread)), key=_first
                    )
        spans = [_around(centre, span) for centre, span in zip(best[2], spans, strict=True)]
    return best[1]


def _first(entry: tuple[float, Fit, tuple[float, ...]]) -> float:
    return entry[0]


def _grid(low: float, high: float) -> list[float]:
    return [low + (high - low) * k / (_STEPS - 1) for k in range(_STEPS)]


def _around(centre: float, span: tuple[float, float]) -> tuple[float, float]:
    """Half of the span, moved to the centre, within the span."""
    reach = (span[1] - span[0]) / 4
    return max(span[0], centre - reach), min(span[1], centre + reach)


def _log_likelihood(fit: Fit, counted: Counter[tuple[int, int]]) -> float:
    return sum(times * math.log(_likelihood(fit, n, correct)) for (n, correct), times in counted.items())


def _likelihood(fit: Fit, n: int, correct: int) -> float:
    among = _log_beta(fit.a + correct, fit.b + n - correct) - _log_beta(fit.a, fit.b)
    chance = fit.ceiling * math.comb(n, correct) * math.exp(among)
    return max(chance + (fit.hopeless if correct == 0 else 0.0), 1e-300)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
