"""Which operator is worth asking: what each has gained beyond noise, for what it cost.

An upper confidence bound over operators of all proposers alike; everything follows from the view. Gains are
logarithms of speed over the parent's (or the best so far, where there is none), counted from the lower end of
the interval; costs are seconds of the device and of waiting, and dollars at a rate.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from assay.search.protocol import Member, Operator, View

EXPLORATION = 0.7
SECONDS_PER_USD = 120.0
"""What a dollar is worth in device seconds."""
PRIOR_GAIN, PRIOR_TRIES = 0.05, 1.0
"""Every operator starts as if it had once gained five percent."""
NEW_BEST = 2.0


@dataclass(frozen=True, slots=True)
class Arm:
    """What an operator has brought."""

    key: str
    tries: int
    gain: float
    """Sum over its candidates."""
    cost_s: float

    def worth(self, tries_of_all: int, typical_s: float) -> float:
        """Gain for the cost of a typical try, and how much could still be hidden."""
        tries = self.tries + PRIOR_TRIES
        cost = (self.cost_s + typical_s * PRIOR_TRIES) / (typical_s * tries)
        mean = (self.gain + PRIOR_GAIN) / tries / cost
        return mean + EXPLORATION * PRIOR_GAIN * math.sqrt(2 * math.log(tries_of_all + 2) / tries)


def arms(view: View) -> dict[str, Arm]:
    """Every operator that was ever asked, by its key."""
    totals: dict[str, list[float]] = {}
    for request in view.asked:
        if request.id in view.open:
            continue
        entry = totals.setdefault(request.operator.key, [0, 0.0, 0.0])
        entry[0] += 1
        entry[2] += view.waits.get(request.id, 0.0) + (view.costs.get(request.id) or 0.0) * SECONDS_PER_USD
    best = 1.0
    for member in view.judged:
        entry = totals[member.operator.key]
        entry[1] += _gain(member, view, best)
        entry[2] += member.seconds
        best = max(best, member.speed)
    return {key: Arm(key, int(tries), gain, cost) for key, (tries, gain, cost) in totals.items()}


def _gain(member: Member, view: View, best_before: float) -> float:
    if member.ratio is None:
        return 0.0
    parents = [view.by_id[number].middle for number in member.parents]
    start = max(parents, default=best_before)
    gained = max(0.0, math.log(member.ratio.low / start)) if start > 0 and member.ratio.low > 0 else 0.0
    return gained * (NEW_BEST if member.ratio.low > best_before else 1.0)


def choose(operators: Sequence[Operator], view: View, seed: str) -> Operator:
    """The operator to ask next; ties are drawn, for each operator by itself."""
    known = arms(view)
    tries = sum(arm.tries for arm in known.values())
    cost = sum(arm.cost_s for arm in known.values())
    typical_s = max(cost / tries, 1e-3) if tries else 1.0
    flying: dict[str, int] = {}
    for request in view.asked:
        if request.id in view.open:
            flying[request.operator.key] = flying.get(request.operator.key, 0) + 1

    def score(operator: Operator) -> tuple[float, float]:
        arm = known.get(operator.key, Arm(operator.key, 0, 0.0, 0.0))
        waiting = Arm(arm.key, arm.tries + flying.get(operator.key, 0), arm.gain, arm.cost_s)
        return waiting.worth(tries, typical_s), random.Random(f"{seed}/{operator.key}").random()

    return max(operators, key=score)
