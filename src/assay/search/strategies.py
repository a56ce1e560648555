"""Three ways to go about it: independent samples, serial refinement, evolution.

Each is a pure function of the number of the request and the view; random choices are seeded by the search's
seed and that number.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from assay.search.axes import island
from assay.search.bandit import choose
from assay.search.budget import since_progress
from assay.search.protocol import (
    FAILED_PARENT,
    IDEA,
    NOTHING,
    RIGHT_PARENT,
    TWO_PARENTS,
    Idea,
    Member,
    Operator,
    Request,
    View,
)

BEAM = 3
"""Parents that are exploited: the best of different islands first."""
STALLED = 6
"""Evaluations without progress before the search widens."""
EXPLORE = 0.15
"""Share of requests that start from outside of the beam; it doubles with every stall."""
REPAIRS = 3
"""Tries to repair one line of failed candidates."""
LIVES = 3
"""Failed implementations before an idea is given up."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """What could be asked, and from what."""

    operator: Operator
    parents: tuple[int, ...] = ()
    idea: int | None = None

    def request(self, number: int) -> Request:
        return Request(number, self.operator, self.parents, self.idea)


class Independent:
    """Samples that know nothing of each other: what a checker and width alone can buy."""

    name = "independent"

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def next(self, number: int, view: View, operators: tuple[Operator, ...]) -> Request | None:
        seed = f"{self._seed}/{number}"
        choices = [*_from_ideas(view, operators), *_from_nothing(view, operators)]
        # An idea that nobody has written down yet comes before another one.
        first = [choice for choice in choices if choice.idea is not None and not _tries(choice.idea, view)]
        fresh = [choice for choice in choices if choice.idea is None]
        pool = first or fresh
        return choose_among(pool, view, seed).request(number) if pool else None


class Serial:
    """One line of attempts: repair what failed, improve what is right."""

    name = "serial"

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def next(self, number: int, view: View, operators: tuple[Operator, ...]) -> Request | None:
        if view.open or any(m.status is None and m.duplicate_of is None for m in view.members):
            return None  # the next attempt depends on how this one ends
        seed = f"{self._seed}/{number}"
        last = next((m for m in reversed(view.members) if m.duplicate_of is None), None)
        if last is not None and not last.is_right:
            repairs = _with_parent(view, operators, FAILED_PARENT, [last])
            if repairs and _failed_in_a_row(last, view) <= REPAIRS:
                return choose_among(repairs, view, seed).request(number)
        start = view.best if view.best is not None else last
        improve = _with_parent(view, operators, RIGHT_PARENT, [start] if start and start.is_right else [])
        ideas = [c for c in _from_ideas(view, operators) if c.idea and not _tries(c.idea, view)]
        for pool in (improve, ideas, _from_nothing(view, operators)):
            if pool:
                return choose_among(pool, view, seed).request(number)
        return None


class Evolution:
    """A small beam that is exploited, a branch that explores, islands, and a bandit over operators."""

    name = "evolution"

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def next(self, number: int, view: View, operators: tuple[Operator, ...]) -> Request | None:
        seed = f"{self._seed}/{number}"
        beam = self._parents(view, random.Random(f"{seed}/parents"))
        failed = [m for m in view.judged if not m.is_right and _worth_repair(m, view)]
        pool = [
            *_from_nothing(view, operators),
            *_from_ideas(view, operators),
            *_with_parent(view, operators, RIGHT_PARENT, beam),
            *_with_parent(view, operators, FAILED_PARENT, failed[-1:]),
            *_crossings(view, operators, beam, random.Random(f"{seed}/crossings")),
        ]
        # Where those have nothing left to give, whoever is right is gone on with.
        pool = pool or _with_parent(view, operators, RIGHT_PARENT, view.ranked)
        return choose_among(pool, view, seed).request(number) if pool else None

    def _parents(self, view: View, rng: random.Random) -> list[Member]:
        """The best of each island, pinned ones first; now and then somebody else."""
        stalls = since_progress(view) // STALLED
        if view.ranked and rng.random() < min(0.6, EXPLORE * 2**stalls):
            weights = [_weight(m, view) for m in view.ranked]
            return rng.choices(view.ranked, weights)
        pinned = [m for m in view.ranked if m.id in view.pinned]
        islands: dict[str, Member] = {}
        for member in view.ranked:
            islands.setdefault(island(member), member)
        beam = [*pinned, *islands.values()]
        # Several islands only while they are within reach of the best.
        reach = 0.8 if stalls else 0.93
        best = view.ranked[0].speed if view.ranked else 0.0
        near = [m for m in beam if m.speed >= reach * best or m.id in view.pinned]
        return list(dict.fromkeys(near))[: BEAM + len(pinned)]


def choose_among(pool: Sequence[_Choice], view: View, seed: str) -> _Choice:
    """The bandit chooses the operator, chance among the ways to start it; earlier parents are likelier."""
    operators = list({choice.operator.key: choice.operator for choice in pool}.values())
    chosen = choose(operators, view, seed)
    ways = [choice for choice in pool if choice.operator.key == chosen.key]
    return random.Random(f"{seed}/way").choices(ways, [0.5**k for k in range(len(ways))])[0]


def _from_nothing(view: View, operators: Sequence[Operator]) -> list[_Choice]:
    return [_Choice(o) for o in operators if o.needs == NOTHING and not _is_exhausted(o, (), view)]


def _from_ideas(view: View, operators: Sequence[Operator]) -> list[_Choice]:
    alive = sorted((i for i in view.ideas if _is_alive(i, view)), key=lambda i: _promise(i, view))
    return [
        _Choice(o, (), idea.id)
        for o in operators
        if o.needs == IDEA
        for idea in alive
        if idea_is_of(idea, o, view)
    ]


def idea_is_of(idea: Idea, operator: Operator, view: View) -> bool:
    """Whoever had an idea carries it out; a person's may be carried out by anybody."""
    asked = next(request for request in view.asked if request.id == idea.request)
    return asked.operator.proposer in (operator.proposer, "queue")


def _with_parent(
    view: View, operators: Sequence[Operator], needs: str, parents: Sequence[Member]
) -> list[_Choice]:
    return [
        _Choice(o, (parent.id,), parent.idea)
        for o in operators
        if o.needs == needs
        for parent in parents
        if not _is_exhausted(o, (parent.id,), view)
    ]


def _crossings(
    view: View, operators: Sequence[Operator], beam: Sequence[Member], rng: random.Random
) -> list[_Choice]:
    wanted = [o for o in operators if o.needs == TWO_PARENTS]
    others = [m for m in view.ranked if beam and m.id != beam[0].id]
    if not wanted or not others:
        return []
    other = rng.choices(others, [_weight(m, view) for m in others])[0]
    pair = (beam[0].id, other.id)
    return [_Choice(o, pair) for o in wanted if not _is_exhausted(o, pair, view)]


def _is_exhausted(operator: Operator, parents: tuple[int, ...], view: View) -> bool:
    return any(
        request.id in view.exhausted and request.operator.key == operator.key and request.parents == parents
        for request in view.asked
    )


def _tries(idea: int, view: View) -> int:
    """Requests that carry it out, under way or answered."""
    return sum(request.idea == idea for request in view.asked)


def _is_alive(idea: Idea, view: View) -> bool:
    """Until several implementations have failed and none was right."""
    mine = [m for m in view.judged if m.idea == idea.id]
    if any(m.is_right for m in mine):
        return len(mine) < LIVES
    return _tries(idea.id, view) < LIVES


def _promise(idea: Idea, view: View) -> tuple[int, float]:
    """Untried ideas first, then by the gain they promise."""
    return _tries(idea.id, view), -(idea.new.predicted_gain or 1.0)


def _weight(member: Member, view: View) -> float:
    """Speed counts, and having few children: what was tried often has less left to give."""
    best = view.ranked[0].speed or 1.0
    return math.exp(4 * (member.speed / best - 1)) / (1 + len(view.children(member.id)))


def _worth_repair(member: Member, view: View) -> bool:
    if view.children(member.id) or any(member.id in request.parents for request in view.asked):
        return False
    return member.id not in view.banned and _failed_in_a_row(member, view) <= REPAIRS


def _failed_in_a_row(member: Member, view: View) -> int:
    count = 0
    for one in view.ancestry(member):
        if one.is_right:
            break
        count += 1
    return count


STRATEGIES = {one.name: one for one in (Independent, Serial, Evolution)}
