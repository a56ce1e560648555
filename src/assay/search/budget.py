"""What a search may spend, what it has spent, and when that ends it.

Limits compose: whichever is reached first stops the search. Money and tokens count what is in flight, at the
average of what has been answered. What nobody knows is shown as unknown, and cannot be a limit that holds: a
search with a limit in dollars ends when a price is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.records import Passed
from assay.search.protocol import View

STALL = 1.01
"""Less than this is no progress."""
BEYOND = 110.0
"""Percent: whoever is faster than the physical limit shows that it is none here, as where caches hold all."""
BARREN = 25
"""So many answers in a row without a new candidate end a search, whatever its limits."""


@dataclass(frozen=True, slots=True)
class Limits:
    """None where there is no limit."""

    wall_s: float | None = None
    device_s: float | None = None
    evaluations: int | None = None
    tokens: int | None = None
    usd: float | None = None
    percent_of_limit: float | None = None
    """Of the physical limit: reached, there is nothing left to find."""
    stalled_after: int | None = None
    """Evaluations without a better kernel."""


@dataclass(frozen=True, slots=True)
class Spent:
    """None where it is not known."""

    wall_s: float
    device_s: float
    evaluations: int
    """Judged, or about to be."""
    tokens: int | None
    usd: float | None


@dataclass(frozen=True, slots=True)
class Use:
    """One budget as it stands: for people."""

    name: str
    used: float | None
    limit: float | None
    unit: str


def spent(view: View, *, wall_s: float, tokens: tuple[int, int], at_work: int) -> Spent:
    """`tokens` are those known, and the number of exchanges that did not say."""
    judged = view.judged
    known, silent = tokens
    asked_models = len(view.costs)
    flying = len(view.open)
    costs = list(view.costs.values())
    usd = None if any(cost is None for cost in costs) else sum(cost or 0.0 for cost in costs)
    if usd is not None and costs:
        usd += flying * usd / len(costs)
    tokens_now = None if silent else known + (flying * known // asked_models if asked_models else 0)
    return Spent(
        wall_s=wall_s,
        device_s=sum(member.seconds for member in judged),
        evaluations=len(judged) + at_work,
        tokens=tokens_now,
        usd=usd,
    )


def stop_reason(limits: Limits, spent: Spent, view: View) -> str | None:
    """Why no more is to be asked or judged; None to go on."""
    checks = (
        (limits.wall_s, spent.wall_s, "the time is up", ""),
        (limits.device_s, spent.device_s, "the device's time is spent", ""),
        (limits.tokens, spent.tokens, "the tokens are spent", "a model does not say how many tokens it took"),
        (limits.usd, spent.usd, "the money is spent, calls under way included", "a model's price is unknown"),
    )
    for limit, used, reason, unknown in checks:
        if limit is not None and used is None:
            return f"{unknown}: the limit could not be held"
        if limit is not None and used is not None and used >= limit:
            return reason
    if limits.percent_of_limit is not None and limits.percent_of_limit <= percent_reached(view) <= BEYOND:
        return f"{percent_reached(view):.0f} % of the physical limit are reached"
    if limits.stalled_after is not None and since_progress(view) >= limits.stalled_after:
        return f"{limits.stalled_after} evaluations brought nothing better"
    if barren(view) >= BARREN:
        return f"the last {BARREN} answers brought no candidate"
    return None


def barren(view: View) -> int:
    """Answers since the last one that brought a candidate nobody had brought before."""
    fruitful = max((m.request for m in view.members if m.duplicate_of is None), default=0)
    return sum(request.id > fruitful and request.id not in view.open for request in view.asked)


def room(limits: Limits, spent: Spent) -> int | None:
    """How many more may be judged; None for any number."""
    return None if limits.evaluations is None else max(0, limits.evaluations - spent.evaluations)


def percent_reached(view: View) -> float:
    best = view.best
    if best is None or not isinstance(best.verdict, Passed) or best.verdict.speed is None:
        return 0.0
    roofline = best.verdict.speed.roofline
    return 0.0 if roofline is None else roofline.percent


def since_progress(view: View) -> int:
    """Evaluations since the last one that was better than all before by more than noise."""
    best, since = 0.0, 0
    for member in view.judged:
        since += 1
        if member.speed > best * STALL:
            best, since = member.speed, 0
    return since


def uses(limits: Limits, spent: Spent, view: View) -> tuple[Use, ...]:
    """All budgets, for people."""
    return (
        Use("time", spent.wall_s, limits.wall_s, "s"),
        Use("device", spent.device_s, limits.device_s, "s"),
        Use("evaluations", spent.evaluations, limits.evaluations, ""),
        Use("tokens", spent.tokens, limits.tokens, ""),
        Use("money", spent.usd, limits.usd, "USD"),
        Use("physical limit", percent_reached(view), limits.percent_of_limit, "%"),
        Use("without progress", since_progress(view), limits.stalled_after, ""),
    )
