"""The driver of a run: asks the source for candidates, the crew for verdicts, and writes down what comes.

Every sample of a problem is a chain of turns; the next one is asked for when the last one has its verdict.
Only this process writes to the archive, and every verdict is written when it comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from typing import Protocol

from assay.archive import UNREADABLE, Archive, Judged, Planned
from assay.evaluation.asking import Asking
from assay.evaluation.line import Done, Task
from assay.evaluation.sources import Source
from assay.evaluation.suite import Suite
from assay.records.decoding import decode_verdict

PROPOSERS = 8
"""Asked for candidates at once: a model takes a minute to answer."""


class Workers(Protocol):
    """Whoever judges: processes of this machine, or of a cluster."""

    def submit(self, task: Task) -> None: ...

    def next_done(self) -> Done | None:
        """What has ended, if anything does within a moment."""
        ...


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    judged: int
    known: int
    """Candidates there are by now; more may come where turns follow."""
    last: Judged
    elapsed_s: float


@dataclass(slots=True)
class _Chain:
    problem: str
    sample: int
    history: list[Judged] = field(default_factory=list)


class Run:
    """One run, until every chain has ended."""

    def __init__(self, archive: Archive, suite: Suite, source: Source, workers: Workers) -> None:
        self._archive = archive
        self._suite = suite
        self._source = source
        self._workers = workers
        self._chains: dict[tuple[str, int], _Chain] = {}
        self._asked: dict[Future[Planned | None], _Chain] = {}
        self._at_work: dict[int, _Chain] = {}

    def drive(self, on_progress: Callable[[Progress], None], on_waiting: Callable[[int], None]) -> None:
        """Judge what is not judged yet; may be left at any point and begun again.

        `on_waiting` is told how many answers are still to come when the run is interrupted.
        """
        start = time.monotonic()
        self._begin()
        asking: Asking[Planned | None] = Asking(PROPOSERS)
        busy = {(chain.problem, chain.sample) for chain in self._at_work.values()}
        try:
            for place, chain in self._chains.items():
                if place not in busy:
                    self._ask(asking, chain)
            while self._asked or self._at_work:
                self._take_proposals()
                done = self._workers.next_done() if self._at_work else None
                if done is None:
                    continue
                chain = self._at_work.pop(done.task.candidate.id)
                judged = keep_done(self._archive, done)
                chain.history.append(judged)
                known, finished = self._archive.counts()
                on_progress(Progress(finished, known, judged, time.monotonic() - start))
                self._ask(asking, chain)
        finally:
            asking.end(on_waiting)
            self._keep_proposals()

    def _begin(self) -> None:
        """All chains, those of an earlier start with their history."""
        for problem in self._suite.listed:
            self._archive.add_problem(problem)
        for name in self._suite.problems:
            for sample in self._source.samples(name):
                self._chains[name, sample] = _Chain(name, sample)
        for judged in self._archive.judged():
            chain = self._chains.get((judged.candidate.problem, judged.candidate.sample))
            if chain is not None:
                chain.history.append(judged)
        for planned in self._archive.waiting():
            chain = self._chains.get((planned.problem, planned.sample))
            if chain is not None:
                self._submit(chain, planned)

    def _ask(self, asking: Asking[Planned | None], chain: _Chain) -> None:
        future = asking.ask(self._source.propose, chain.problem, chain.sample, tuple(chain.history))
        self._asked[future] = chain

    def _take_proposals(self) -> None:
        """Those that are there; without anybody at work, wait for one."""
        patience_s = 0.0 if self._at_work else None
        ready, _ = wait(self._asked, timeout=patience_s, return_when=FIRST_COMPLETED)
        for future in sorted(ready, key=lambda f: (self._asked[f].problem, self._asked[f].sample)):
            chain = self._asked.pop(future)
            planned = future.result()
            if planned is not None:
                self._submit(chain, replace(planned, id=self._archive.add(planned)))

    def _submit(self, chain: _Chain, planned: Planned) -> None:
        self._at_work[planned.id] = chain
        self._workers.submit(Task(planned, self._suite.problems[chain.problem].path))

    def _keep_proposals(self) -> None:
        """Answers that came after the run was told to end."""
        for future in self._asked:
            planned = None if future.cancelled() or future.exception() else future.result()
            if planned is not None:
                self._archive.add(planned)


def keep_done(archive: Archive, done: Done) -> Judged:
    """Write down what a worker told."""
    number, seconds = done.task.candidate.id, float(done.reply.get("seconds", 0.0))
    if "verdict" in done.reply:
        archive.keep_verdict(number, decode_verdict(done.reply["verdict"]), done.worker, seconds)
    elif UNREADABLE in done.reply:
        archive.keep_unreadable(number, done.reply[UNREADABLE], done.worker, seconds)
    else:
        archive.keep_failure(number, done.reply["failure"], done.worker, seconds)
    return archive.judged_one(number)
