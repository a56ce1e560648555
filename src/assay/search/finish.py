"""The end of a search: the smallest change that keeps the gain, judged again by somebody who has not seen it.

The winner's parts (its actions, or the changes to its parent's text) are left out one at a time; what is not
missed stays out. Then a fresh judge, with hidden cases of its own, has the last word; where it does not call
the winner faster, the next one is tried. What was learned on the way is kept like everything else.
"""

from __future__ import annotations

import difflib
import itertools
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from assay.archive import SearchArchive
from assay.evaluation import Task, Workers, keep_done
from assay.problems import Problem
from assay.records import FASTER, Passed, Verdict, digest, to_plain
from assay.records.decoding import decode_verdict
from assay.search.memory import Memory, answered, asked
from assay.search.protocol import RIGHT_PARENT, Draft, Member, Operator, Reply, Request, View

ABLATE = Operator("finish", "ablate", RIGHT_PARENT)
POLISH = Operator("finish", "polish", RIGHT_PARENT)
MOST_ABLATIONS = 8
POLISHED = 6
"""Evaluations that a search keeps for the last knobs."""
FINALISTS = 3
FINAL = "final"

Rebuild = Callable[[Sequence[str], View], Draft | None]
Tune = Callable[[Request, View], Reply]
"""One knob of the parent set otherwise."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What a search has found."""

    winner: Member | None
    """None where nothing is faster than the best baseline."""
    verdict: Passed | None
    """The last word on it."""
    left_out: tuple[str, ...]
    """Parts of the best candidate that nobody misses."""
    refused: tuple[str, ...]
    """Why faster ones were not taken."""
    split: tuple[tuple[str, float], ...]
    """Where the gain comes from: factors whose product is the ratio."""


class Finish:
    """Judges what is left to judge."""

    def __init__(
        self,
        archive: SearchArchive,
        problem: Problem,
        device: str,
        rebuild: Rebuild,
        tell: Callable[[str], None],
        patience_s: float = math.inf,
    ) -> None:
        """`patience_s`: after so long neither polishing nor leaving out goes on."""
        self._archive = archive
        self._problem = problem
        self._memory = Memory(archive, problem, device)
        self._rebuild = rebuild
        self._tell = tell
        self._until = time.monotonic() + patience_s

    def view(self) -> View:
        return self._memory.view()

    def polish(self, workers: Workers, tune: Tune) -> None:
        """Neighbours of the best, one knob at a time; only what is faster beyond noise takes its place."""
        best = self._memory.view().best
        for _ in range(POLISHED):
            is_tunable = best is not None and best.ratio is not None and bool(best.draft.actions)
            if best is None or not is_tunable or self._is_late():
                return
            request = Request(self._archive.next_request(), POLISH, (best.id,))
            reply = tune(request, self._memory.view())
            if not reply.drafts:
                return
            draft = reply.drafts[0]
            self._tell(f"{draft.note}?")
            member = self._judged(workers, request, draft)
            if member is not None and member.speed > best.middle:
                best = member

    def shorten(self, workers: Workers) -> tuple[str, ...]:
        """Leave out what the best candidate does not need; returns those parts."""
        best = self._memory.view().best
        if best is None or best.ratio is None or best.ratio.low <= 1:
            return ()
        parts = self._parts(best)
        if len(parts) < 2:
            return ()
        left_out: list[str] = []
        floor = best.ratio.low
        for part in list(parts)[:MOST_ABLATIONS]:
            shorter = [one for one in parts if one != part]
            draft = self._of_parts(best, shorter)
            if self._is_late():
                break
            if draft is None or not shorter:
                continue
            self._tell(f"without {_short(part)}?")
            request = Request(self._archive.next_request(), ABLATE, (best.id,))
            member = self._judged(workers, request, replace(draft, note=f"without {_short(part)}"))
            if member is not None and member.ratio is not None and member.ratio.middle >= floor:
                parts, left_out = shorter, [*left_out, part]
        return tuple(_short(part) for part in left_out)

    def confirm(
        self, open_workers: Callable[[], AbstractContextManager[Workers]], left_out: tuple[str, ...]
    ) -> Ending:
        """A fresh judge's word on the best ones, the shortest of those that are equally fast first."""
        view = self._memory.view()
        refused: list[str] = []
        finalists = self._finalists(view)
        if not finalists:
            return Ending(None, None, (), (), ())
        with open_workers() as workers:
            for member in finalists:
                self._tell(f"#{member.id} {member.draft.name} before a fresh judge")
                verdict = self._last_word(workers, member)
                if _is_faster(verdict):
                    assert isinstance(verdict, Passed)
                    return Ending(member, verdict, left_out, tuple(refused), split(member, verdict, view))
                refused.append(f"#{member.id} {member.draft.name}: {_why_not(verdict)}")
        return Ending(None, None, (), tuple(refused), ())

    def _is_late(self) -> bool:
        return time.monotonic() > self._until

    def _finalists(self, view: View) -> list[Member]:
        faster = [m for m in view.ranked if _is_faster(m.verdict)]
        if not faster:
            return []
        # Equally fast is equally good, and then the simpler one is better.
        first = faster[0].ratio
        near = [m for m in faster if first and m.ratio and m.ratio.middle >= first.low]
        near.sort(key=lambda m: (len(m.draft.actions), len(m.draft.source), m.id))
        rest = [m for m in faster if m not in near]
        return [*near, *rest][:FINALISTS]

    def _parts(self, best: Member) -> list[str]:
        """Its actions but for the first, which says what it starts from; else its changes to its parent."""
        if best.draft.actions:
            return list(best.draft.actions[1:])
        if not best.parents:
            return []
        parent = self._memory.view().by_id[best.parents[0]]
        return hunks(parent.draft.source, best.draft.source)

    def _of_parts(self, best: Member, parts: Sequence[str]) -> Draft | None:
        view = self._memory.view()
        if best.draft.actions:
            return self._rebuild((best.draft.actions[0], *parts), view)
        parent = view.by_id[best.parents[0]]
        source = with_hunks(parent.draft.source, best.draft.source, parts)
        return replace(best.draft, source=source, name=f"{best.draft.name}_shorter")

    def _judged(self, workers: Workers, request: Request, draft: Draft) -> Member | None:
        """One more candidate of the archive, judged now; one that is known already is not judged again."""
        self._archive.add_request(asked(self._problem, request))
        reply = Reply((draft,))
        kept = self._archive.keep_answer(request.id, answered(self._problem, request, reply, 0.0))[0]
        if kept.duplicate_of is None:
            workers.submit(Task(kept.candidate, self._problem.path))
            while (done := workers.next_done()) is None or done.task.candidate.id != kept.candidate.id:
                if done is not None:
                    keep_done(self._archive, done)
            keep_done(self._archive, done)
        return self._memory.view().by_id.get(kept.duplicate_of or kept.candidate.id)

    def _last_word(self, workers: Workers, member: Member) -> Verdict | None:
        fact = f"{FINAL} {self._problem.name}"
        known = self._archive.facts().get(fact)
        key = {"candidate": member.id, "source": digest(member.draft.source)}
        if isinstance(known, dict) and {name: known.get(name) for name in key} == key:
            return decode_verdict(known["verdict"])
        planned = next(one.candidate for one in self._archive.drafted() if one.candidate.id == member.id)
        workers.submit(Task(planned, self._problem.path))
        while (done := workers.next_done()) is None:
            pass
        if "verdict" not in done.reply:
            return None
        verdict = decode_verdict(done.reply["verdict"])
        if _is_faster(verdict):
            self._archive.set_fact(fact, {**key, "verdict": to_plain(verdict)})
        return verdict


def _is_faster(verdict: Any) -> bool:
    return isinstance(verdict, Passed) and verdict.speed is not None and verdict.speed.outcome == FASTER


def _why_not(verdict: Verdict | None) -> str:
    if verdict is None:
        return "the fresh judge failed on it"
    if isinstance(verdict, Passed) and verdict.speed is not None:
        ratio = verdict.speed.ratio
        return f"{verdict.speed.outcome} before a fresh judge ({ratio.low:.3f} to {ratio.high:.3f})"
    return f"{verdict.status} before a fresh judge, on cases it had not met"


def split(member: Member, verdict: Passed, view: View) -> tuple[tuple[str, float], ...]:
    """The ratio as a product: structure, knobs, launches. Precision gains nothing: both obey one rule."""
    if verdict.speed is None:
        return ()
    total = verdict.speed.ratio.middle
    graphed = verdict.speed.graphed
    launch = total / graphed.middle if graphed is not None and graphed.middle > 0 else 1.0
    knobs = 1.0
    line = view.ancestry(member)
    for child, parent in itertools.pairwise(line):
        added = [one for one in child.draft.actions if one not in parent.draft.actions]
        if added and all("=" in one for one in added) and parent.ratio and child.ratio:
            knobs *= child.ratio.middle / parent.ratio.middle
    return (("structure", total / knobs / launch), ("knobs", knobs), ("launch", launch), ("precision", 1.0))


def hunks(before: str, after: str) -> list[str]:
    """The places where two texts differ, each as a word that `with_hunks` understands."""
    codes = _matcher(before, after).get_opcodes()
    return [f"lines {j1 + 1}-{j2} ({tag})" for tag, _, _, j1, j2 in codes if tag != "equal"]


def with_hunks(before: str, after: str, wanted: Sequence[str]) -> str:
    """The first text with the named changes alone."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    lines: list[str] = []
    for tag, i1, i2, j1, j2 in _matcher(before, after).get_opcodes():
        is_wanted = tag == "equal" or f"lines {j1 + 1}-{j2} ({tag})" in wanted
        lines += new[j1:j2] if is_wanted else old[i1:i2]
    return "".join(lines)


def _matcher(before: str, after: str) -> difflib.SequenceMatcher[str]:
    return difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)


def _short(part: str) -> str:
    return part if len(part) <= 60 else f"{part[:57]}..."
