"""A search's status as the snapshot that views show."""

from __future__ import annotations

import time
from collections import deque

from assay.archive import NO_VERDICT
from assay.records import FASTER, Passed, Speed
from assay.search.budget import Limits, uses
from assay.search.driver import Status
from assay.search.protocol import Idea, Member, View
from assay.search.snapshot import (
    CANDIDATE,
    IDEA,
    Activity,
    BestShown,
    BudgetShown,
    Counts,
    Event,
    LimitShown,
    NodeKey,
    ProposerShown,
    RungShown,
    Snapshot,
    TreeNode,
)

KEPT_EVENTS = 50
_UNITS = {"USD": "$"}


class Showing:
    """Remembers what happened and when, and makes snapshots."""

    def __init__(self, problem: str, device: str, strategy: str, limits: Limits) -> None:
        self._head = {"problem": problem, "device": device, "strategy": strategy}
        self._limits = limits
        self._events: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self._count = 0
        self._start = time.monotonic()
        self._seen: dict[int, float] = {}
        self._current: tuple[int, float] | None = None

    def snapshot(self, status: Status) -> Snapshot:
        elapsed = time.monotonic() - self._start
        if status.event:
            self._count += 1
            self._events.append(Event(self._count, elapsed, status.event))
        view = status.view
        speed = _some_speed(view)
        return Snapshot(
            **self._head,
            elapsed_s=elapsed,
            ladder=_ladder(speed),
            limit=_limit(speed, view),
            best=_best(view),
            budgets=tuple(
                BudgetShown(use.name, use.used, use.limit, _UNITS.get(use.unit, use.unit))
                for use in uses(self._limits, status.spent, view)
            ),
            counts=counts(view),
            activity=self._activity(status, elapsed),
            proposers=_proposers(view),
            tree=tuple(self._tree(status, elapsed)),
            events=tuple(self._events),
        )

    def _activity(self, status: Status, elapsed: float) -> Activity:
        busy = min(1.0, status.busy_s / elapsed) if elapsed > 0 else None
        queues = (("to judge", max(0, len(status.at_work) - 1)), ("to answer", len(status.view.open)))
        if not status.at_work:
            self._current = None
            return Activity("", None, queues, busy)
        number = status.at_work[0]
        if self._current is None or self._current[0] != number:
            self._current = (number, elapsed)
        name = status.view.by_id[number].draft.name
        return Activity(f"judging #{number} {name}", self._current[1], queues, busy)

    def _tree(self, status: Status, elapsed: float) -> list[TreeNode]:
        view = status.view
        nodes = [_idea_node(idea) for idea in view.ideas]
        best = view.best
        for member in view.members:
            since = self._seen.setdefault(member.id, elapsed)
            nodes.append(
                TreeNode(
                    id=member.id,
                    kind=CANDIDATE,
                    label=member.draft.name,
                    parent=_parent(member),
                    status=_status(member, status),
                    ratio=member.ratio,
                    pinned=member.id in view.pinned,
                    banned=member.id in view.banned,
                    is_best=best is not None and member.id == best.id,
                    age_s=elapsed - since,
                    note=member.draft.note,
                )
            )
        return nodes


def _parent(member: Member) -> NodeKey | None:
    if member.parents:
        return CANDIDATE, member.parents[0]
    return None if member.idea is None else (IDEA, member.idea)


def _idea_node(idea: Idea) -> TreeNode:
    parent = None if idea.parent is None else (IDEA, idea.parent)
    return TreeNode(idea.id, IDEA, idea.new.title, parent, note=idea.new.hypothesis)


def _status(member: Member, status: Status) -> str:
    if member.duplicate_of is not None:
        return "duplicate"
    if member.status is not None:
        return member.status
    return "judging" if status.at_work and status.at_work[0] == member.id else "waiting"


def _some_speed(view: View) -> Speed | None:
    """The ladder is the same for all: the best one's, or any that was timed."""
    for member in (*view.ranked, *view.judged):
        if isinstance(member.verdict, Passed) and member.verdict.speed is not None:
            return member.verdict.speed
    return None


def _ladder(speed: Speed | None) -> tuple[RungShown, ...]:
    if speed is None:
        return ()
    return tuple(
        RungShown(rung.name, None if rung.times is None else rung.times.device_us, rung.absent)
        for rung in speed.rungs
    )


def _limit(speed: Speed | None, view: View) -> LimitShown | None:
    if speed is None or speed.roofline is None:
        return None
    return LimitShown(speed.roofline.floor_us, speed.roofline.percent if view.best is not None else None)


def _best(view: View) -> BestShown | None:
    best = view.best
    if best is None:
        return None
    speed = best.verdict.speed if isinstance(best.verdict, Passed) else None
    return BestShown(
        id=best.id,
        name=best.draft.name,
        ratio=best.ratio,
        time_us=None if speed is None else speed.times.device_us,
        note=best.draft.note,
        proposer=best.operator.proposer,
        operator=best.operator.name,
    )


def counts(view: View) -> Counts:
    judged = view.judged
    faster = [
        m
        for m in judged
        if isinstance(m.verdict, Passed) and m.verdict.speed is not None and m.verdict.speed.outcome == FASTER
    ]
    return Counts(
        asked=len(view.asked),
        drafted=len(view.members),
        duplicates=sum(m.duplicate_of is not None for m in view.members),
        judged=len(judged),
        right=sum(m.is_right for m in judged),
        faster=len(faster),
        wrong=sum(m.status == "wrong" for m in judged),
        failed=sum(not m.is_right and m.status not in ("wrong", NO_VERDICT) for m in judged),
    )


def _proposers(view: View) -> tuple[ProposerShown, ...]:
    shown: dict[str, list[int]] = {}
    for request in view.asked:
        shown.setdefault(request.operator.proposer, []).append(request.id)
    found = []
    for name, numbers in shown.items():
        costs = [view.costs[n] for n in numbers if n in view.costs]
        cost = None if any(c is None for c in costs) else sum(c or 0.0 for c in costs)
        waiting = sum(n in view.open for n in numbers)
        found.append(ProposerShown(name, waiting, len(numbers) - waiting, cost))
    return tuple(found)
