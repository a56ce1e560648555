"""The driver of a search: asks, keeps, has judged, and goes on until a budget or the strategy ends it.

Only this process writes to the archive. What is asked for is written before anybody is asked, what is
answered before it is judged, what is judged at once; begun again, it asks again what has no answer and has
judged again what has no verdict.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace

from assay.archive import Planned, SearchArchive
from assay.candidates import read_candidate
from assay.evaluation import Done, Task, Workers, keep_done
from assay.evaluation.asking import Asking
from assay.problems import Problem
from assay.records import UserError, digest, to_json
from assay.search.budget import Limits, Spent, room, spent, stop_reason
from assay.search.describing import retyped
from assay.search.memory import Memory, answered, asked
from assay.search.protocol import NOTHING, Draft, Member, Operator, Proposer, Reply, Request, Strategy, View
from assay.search.snapshot import BAN, INJECT, PIN, STOP, UNBAN, UNPIN, Command

PERSON = Operator("person", "inject", NOTHING)
_ORDERS = {PIN: (PIN, True), UNPIN: (PIN, False), BAN: (BAN, True), UNBAN: (BAN, False)}
LOOK_EVERY_S = 0.25
MOST_FAILURES = 3
"""Of the judge itself, one after the other."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How far proposers may run ahead of the judge."""

    open: int = 2
    """Requests at once."""
    waiting: int = 2
    """Candidates that wait for a judge, beyond which nothing more is asked for."""


@dataclass(frozen=True, slots=True)
class Status:
    """The search at one moment, for whoever watches."""

    view: View
    spent: Spent
    at_work: tuple[int, ...]
    """Candidates that a judge has or will have next."""
    busy_s: float
    """How long judges were at work since this process began, all together."""
    event: str = ""
    """What has just happened; empty if only time has passed."""


@dataclass(slots=True)
class _Work:
    asked: dict[Future[Reply], tuple[Request, float]] = field(default_factory=dict)
    judging: dict[int, float] = field(default_factory=dict)
    """When each was handed over."""


class Search:
    """One search, until something ends it."""

    def __init__(
        self,
        archive: SearchArchive,
        problem: Problem,
        device: str,
        proposers: Sequence[Proposer],
        strategy: Strategy,
        workers: Workers,
        *,
        limits: Limits,
        pace: Pace,
        watch: Callable[[Status], None],
        commands: queue.Queue[Command],
        ended: threading.Event,
        brought: Callable[[], Sequence[Draft]] = tuple,
    ) -> None:
        """`ended` is set when nothing more is wanted of proposers that wait for somebody; `brought` gives
        candidates that nobody asked for."""
        self._archive = archive
        self._problem = problem
        self._memory = Memory(archive, problem, device)
        self._proposers = {proposer.name: proposer for proposer in proposers}
        self._operators = tuple(operator for one in proposers for operator in one.operators)
        self._strategy = strategy
        self._workers = workers
        self._limits = limits
        self._pace = pace
        self._watch = watch
        self._commands = commands
        self._ended = ended
        self._brought = brought
        self._work = _Work()
        self._view = self._memory.view()
        self._start = time.monotonic()
        self._earlier_s = float(archive.facts().get("wall_s", 0.0))
        self._busy_s = 0.0
        self._stopped = ""
        self._failures = 0

    def drive(self, on_waiting: Callable[[int], None]) -> str:
        """Until it ends; returns why. May be left at any point and begun again."""
        asking: Asking[Reply] = Asking(max(self._pace.open, 1))
        self._resume(asking)
        try:
            while True:
                self._obey()
                reason = self._stopped or stop_reason(self._limits, self._spent(), self._view)
                if reason:
                    return reason
                self._ask_more(asking)
                if not self._work.asked and not self._work.judging:
                    return self._why_nothing_is_left()
                self._take_replies()
                self._take_verdict()
        finally:
            self._archive.set_fact("wall_s", self._wall_s())
            self._ended.set()
            asking.end(on_waiting)
            self._keep_late_replies()

    def view(self) -> View:
        return self._view

    def _resume(self, asking: Asking[Reply]) -> None:
        for request in self._view.asked:
            if request.id in self._view.open and request.operator.proposer in self._proposers:
                self._ask(asking, request)
        for planned in self._archive.waiting():
            self._submit(planned)

    def _why_nothing_is_left(self) -> str:
        if room(self._limits, self._spent()) == 0:
            return "the evaluations are spent"
        return "nothing is left to try"

    def _ask_more(self, asking: Asking[Reply]) -> None:
        """As many requests as the pace allows and the budget leaves room for."""
        while len(self._work.asked) < self._pace.open:
            left = room(self._limits, self._spent())
            # Open requests will want at least one evaluation each.
            if len(self._work.judging) > self._pace.waiting or (
                left is not None and left <= len(self._work.asked)
            ):
                return
            number = self._archive.next_request()
            request = self._strategy.next(number, self._view, self._operators)
            if request is None:
                return
            self._archive.add_request(asked(self._problem, request))
            self._ask(asking, request)
            self._look()

    def _ask(self, asking: Asking[Reply], request: Request) -> None:
        proposer = self._proposers[request.operator.proposer]
        future = asking.ask(proposer.propose, request, self._view)
        self._work.asked[future] = (request, time.monotonic())

    def _take_replies(self) -> None:
        """Those that are there; where no judge is at work, wait a moment for one."""
        patience_s = 0.0 if self._work.judging else LOOK_EVERY_S
        ready, _ = wait(self._work.asked, timeout=patience_s, return_when=FIRST_COMPLETED)
        for future in sorted(ready, key=lambda one: self._work.asked[one][0].id):
            request, since = self._work.asked.pop(future)
            error = future.exception()
            if isinstance(error, UserError):  # a dead endpoint, say: what was found stays found
                self._stopped = f"{request.operator.key}: {error}"
                continue
            self._keep_reply(request, future.result(), time.monotonic() - since)

    def _keep_reply(self, request: Request, reply: Reply, seconds: float) -> None:
        reply = replace(reply, drafts=tuple(self._noted(request, draft) for draft in reply.drafts))
        kept = self._archive.keep_answer(request.id, answered(self._problem, request, reply, seconds))
        self._look()
        if reply.trouble:
            self._tell(f"{request.operator.key}: {reply.trouble}")
        for idea in reply.ideas:
            self._tell(f"{request.operator.key}: idea: {idea.title}")
        for one in kept:
            if one.duplicate_of is not None:
                self._tell(f"#{one.candidate.id} {one.candidate.name}: the same as #{one.duplicate_of}")
                continue
            left = room(self._limits, self._spent())
            if left is None or left > 0:
                self._submit(one.candidate)

    def _noted(self, request: Request, draft: Draft) -> Draft:
        """With a word on lines that were deleted on the way to its parent and are typed again."""
        if draft.actions or not request.parents:
            return draft
        again = retyped(self._view, self._view.by_id[request.parents[0]], draft.source)
        told = f" ({again} deleted lines are back)"
        if not again or draft.note.endswith(told):  # a recording has it already
            return draft
        return replace(draft, note=draft.note + told)

    def _submit(self, planned: Planned) -> None:
        self._work.judging[planned.id] = time.monotonic()
        best = self._view.best
        worth = best.ratio.low if best is not None and best.ratio is not None else 0.0
        self._workers.submit(Task(planned, self._problem.path, worth))

    def _take_verdict(self) -> None:
        done = self._workers.next_done() if self._work.judging else None
        if done is None:
            self._watch(self._status(""))
            return
        self._keep_verdict(done)

    def settle(self) -> None:
        """Wait for what judges still have, after the end: for whoever goes on with the same judges."""
        while self._work.judging:
            self._take_verdict()

    def _keep_verdict(self, done: Done) -> None:
        self._work.judging.pop(done.task.candidate.id)
        self._busy_s += float(done.reply.get("seconds", 0.0))
        before = self._view.best
        keep_done(self._archive, done)
        self._archive.set_fact("wall_s", self._wall_s())
        self._look()
        self._note_artefact(done)
        self._note_failure(done)
        self._tell(describe(self._view.by_id[done.task.candidate.id], before))

    def _note_failure(self, done: Done) -> None:
        """A judge may fail on one candidate; one that fails on everything has nothing to say."""
        said = done.reply.get("failure")
        self._failures = 0 if said is None else self._failures + 1
        if self._failures >= MOST_FAILURES:
            self._stopped = f"the judge failed {self._failures} times in a row: {said}"

    def _note_artefact(self, done: Done) -> None:
        member = self._view.by_id[done.task.candidate.id]
        resources = member.verdict.resources if member.verdict is not None else ()
        code = sorted(f"{one.digest} {one.threads} {one.blocks}" for one in resources if one.digest)
        if not code:
            return
        twin = self._archive.keep_build(member.id, digest(*code), to_json(list(resources)))
        if twin is not None:
            self._tell(f"#{member.id} {member.draft.name}: compiles to the same code as #{twin}")

    def _obey(self) -> None:
        for draft in self._brought():
            self._judge_too(draft)
        while not self._commands.empty():
            command = self._commands.get()
            if command.kind == STOP:
                self._stopped = "stopped by hand"
            elif command.kind == INJECT:
                self._inject(command.path)
            elif command.candidate in self._view.by_id:
                kind, holds = _ORDERS[command.kind]
                self._archive.order(kind, command.candidate, holds=holds)
                self._look()
                self._tell(f"#{command.candidate}: {command.kind}")

    def _inject(self, path: str) -> None:
        """A file of a person's, judged like any other."""
        try:
            given = read_candidate(path)
        except UserError as error:
            self._tell(f"not injected: {error}")
            return
        self._judge_too(Draft(given.source, given.suffix, given.name, (), "given by hand"))

    def _judge_too(self, draft: Draft) -> None:
        request = Request(self._archive.next_request(), PERSON)
        self._archive.add_request(asked(self._problem, request))
        self._keep_reply(request, Reply((draft,)), 0.0)

    def _keep_late_replies(self) -> None:
        """Answers that came after the search was told to end: they may be paid for."""
        for future, (request, since) in self._work.asked.items():
            if future.cancelled() or future.exception():
                continue
            reply = future.result()
            if reply.drafts or reply.ideas or reply.exchange is not None:  # else it is asked again
                answer = answered(self._problem, request, reply, time.monotonic() - since)
                self._archive.keep_answer(request.id, answer)
        self._look()

    def _look(self) -> None:
        self._view = self._memory.view()

    def _spent(self) -> Spent:
        return spent(
            self._view,
            wall_s=self._wall_s(),
            tokens=self._archive.tokens(),
            at_work=len(self._work.judging),
        )

    def _wall_s(self) -> float:
        return self._earlier_s + time.monotonic() - self._start

    def _tell(self, event: str) -> None:
        self._watch(self._status(event))

    def _status(self, event: str) -> Status:
        return Status(self._view, self._spent(), tuple(self._work.judging), self._busy_s, event)


def describe(member: Member, best_before: Member | None) -> str:
    """A verdict in one line."""
    start = f"#{member.id} {member.draft.name}: "
    if member.ratio is None:
        said = member.record.get("message", "") if member.verdict is None else ""
        return f"{start}{member.status}{': ' if said else ''}{said}"
    ratio = member.ratio
    opponent = member.verdict.speed.opponent  # type: ignore[union-attr]
    better = best_before is None or member.speed > best_before.speed
    told = f"passed, {ratio.middle:.3f}x ({ratio.low:.3f}-{ratio.high:.3f}) of {opponent}"
    return f"{start}{told}{', best so far' if better else ''}"
