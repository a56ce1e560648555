"""How likely an action is to help: what was measured before, and what this search has seen."""

from __future__ import annotations

import json
from dataclasses import replace

from scripted_search import PROBLEM
from synthetic_runs import verdict

from assay.problems import load_problem
from assay.search.odds import EARLIER, learn, summary
from assay.search.protocol import RIGHT_PARENT, Draft, Member, Operator, View

STEP = Operator("compiler", "tune", RIGHT_PARENT)
EMPTY = View(load_problem(PROBLEM), "cuda:0")


def member(number: int, actions: tuple[str, ...], speed: float, parent: int | None = None) -> Member:
    draft = Draft("", ".py", f"c{number}", actions)
    parents = () if parent is None else (parent,)
    told = verdict("layernorm", "passed", speed)
    return Member(number, number, STEP, parents, None, draft, str(number), None, "passed", {}, told, 1.0)


def searched(*steps: tuple[str, float]) -> View:
    """A start, and one action after the other that leads to a speed."""
    members = [member(1, ("variant:base",), 1.0)]
    members += [member(k, ("variant:base", a), speed, 1) for k, (a, speed) in enumerate(steps, 2)]
    return replace(EMPTY, members=tuple(members))


def order(view: View, *actions: str) -> list[str]:
    odds = learn(view)
    return sorted(actions, key=lambda action: -odds.of(action))


def test_what_helped_on_other_problems_comes_first() -> None:
    actions = ("k:maxnreg=64", "k:programs=132", "k:num_warps=8", "k:fast_exp")
    assert order(EMPTY, *actions)[:2] == ["k:fast_exp", "k:num_warps=8"]


def test_a_search_unlearns_what_does_not_hold_for_it() -> None:
    seen = searched(*[(f"k:num_warps={2**k}", 0.5) for k in range(6)], *[("j:evict[0]=evict_first", 1.5)] * 4)
    assert order(seen, "k:num_warps=16", "k:evict[1]=evict_first") == [
        "k:evict[1]=evict_first",
        "k:num_warps=16",
    ]


def test_earlier_searches_count_and_need_not_name_the_same_kernel() -> None:
    earlier = searched(*[("softmax_0:flatten[0]=1", 1.5)] * 6)
    told = {EARLIER: json.dumps(summary([earlier]))}
    assert summary([earlier]) == {"flatten[]=1": (6, 6)}
    assert order(replace(EMPTY, learned=told), "k:swap_grid", "k:flatten[2]=1")[0] == "k:flatten[2]=1"
