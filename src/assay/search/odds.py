"""How likely an action is to help, learned from every evaluation so far, failures among them.

A naive Bayes classifier over the tokens of an action ("help" or "no help"): few evaluations are enough, and
what other problems taught counts as evidence at half its weight. Not covered: how much an action helps.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from assay.search.protocol import Member, View

EARLIER = "earlier actions"
"""The name under which a view carries what earlier searches learned."""
EARLIER_WEIGHT = 0.5
PRIOR_HELPED, PRIOR_TRIED = 0.3, 1.0
MEASURED: Mapping[str, tuple[int, int]] = {
    "fast_exp": (4, 4), "fast_tanh": (1, 1), "fold": (2, 3), "persistent": (3, 5), "num_warps": (17, 54),
    "XBLOCK": (2, 24), "swap_grid": (0, 5), "programs": (0, 12), "maxnreg": (0, 18), "evict[]": (0, 3),
    "evict[*]": (0, 2), "cache[*]": (0, 3), "cache[]": (0, 2), "store_evict[]": (0, 4),
    "store_cache[]": (0, 4), "store_cache[*]": (0, 1),
}  # fmt: skip
"""How often an action on Triton's source helped, and was tried, in the first searches on a GPU: twelve
problems of the suite on an H200 (`tuned_on` in results/h200-search/table.json)."""
_PLACE = re.compile(r"^[\w.]+:")
_NUMBER = re.compile(r"\[\d+\]")


@dataclass(slots=True)
class Odds:
    """How often each token was in an action that helped, and in any."""

    helped: dict[str, float] = field(default_factory=dict)
    tried: dict[str, float] = field(default_factory=dict)

    def count(self, action: str, helped: bool, weight: float = 1.0) -> None:
        for token in tokens(action):
            self.tried[token] = self.tried.get(token, 0.0) + weight
            self.helped[token] = self.helped.get(token, 0.0) + weight * helped

    def of(self, action: str) -> float:
        """Log odds that it helps."""
        total = 0.0
        for token in tokens(action):
            helped = self.helped.get(token, 0.0) + PRIOR_HELPED
            missed = self.tried.get(token, 0.0) - self.helped.get(token, 0.0) + PRIOR_TRIED - PRIOR_HELPED
            total += math.log(helped / missed)
        return total / len(tokens(action))


def tokens(action: str) -> tuple[str, ...]:
    """What of an action says something about other kernels: not which kernel it was."""
    general = _NUMBER.sub("[]", _PLACE.sub("", action))
    name, equals, _ = general.partition("=")
    return (name, general) if equals else (general,)


def learn(view: View) -> Odds:
    """From this search, and from earlier ones that it was shown."""
    odds = Odds()
    earlier = json.loads(view.learned.get(EARLIER, "{}"))
    for action, (helped, tried) in (*MEASURED.items(), *earlier.items()):
        odds.count(action, True, helped * EARLIER_WEIGHT)
        odds.count(action, False, (tried - helped) * EARLIER_WEIGHT)
    for action, helped in outcomes(view):
        odds.count(action, helped)
    return odds


def outcomes(view: View) -> Iterable[tuple[str, bool]]:
    """Every action that was added to a parent, and whether the child was faster beyond noise."""
    for member in view.judged:
        parent = view.by_id.get(member.parents[0]) if member.parents else None
        if parent is None or not member.draft.actions:
            continue
        added = [one for one in member.draft.actions if one not in parent.draft.actions]
        helped = _is_faster(member, parent)
        for action in added:
            yield action, helped


def _is_faster(member: Member, parent: Member) -> bool:
    return member.ratio is not None and member.ratio.low > parent.middle


def summary(views: Iterable[View]) -> Mapping[str, tuple[float, float]]:
    """What earlier searches teach: for each general action, how often it helped and was tried."""
    totals: dict[str, tuple[float, float]] = {}
    for view in views:
        for action, helped in outcomes(view):
            key = tokens(action)[-1]
            before = totals.get(key, (0.0, 0.0))
            totals[key] = (before[0] + helped, before[1] + 1)
    return totals
