"""Candidates that wait for a worker, and what a worker tells of one."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from assay.archive import Planned


@dataclass(frozen=True, slots=True)
class Task:
    """A candidate to be judged."""

    candidate: Planned
    path: str
    """Of its problem."""
    worth: float = 0.0
    """The ratio below which its time is not wanted exactly."""

    def request(self) -> dict[str, Any]:
        """As a worker is asked."""
        one = self.candidate
        return {
            "id": one.id,
            "path": self.path,
            "name": one.name,
            "suffix": one.suffix,
            "source": one.source,
            "worth": self.worth,
        }


@dataclass(frozen=True, slots=True)
class Done:
    """What a worker told of a task."""

    task: Task
    worker: str
    reply: dict[str, Any]


@dataclass(slots=True)
class Line:
    """Tasks that wait; each worker stays with the problem it has prepared as long as that has any."""

    waiting: list[Task] = field(default_factory=list)
    change: threading.Condition = field(default_factory=threading.Condition)
    closed: bool = False
    taken: dict[str, str] = field(default_factory=dict)
    """Which problem each worker is at."""

    def put(self, task: Task, *, first: bool = False) -> None:
        with self.change:
            self.waiting.insert(0 if first else len(self.waiting), task)
            self.change.notify()

    def take(self, worker: str, *, patient: bool = True) -> Task | None:
        """The next task for this worker; None when there will be no more, or none now and no patience."""
        with self.change:
            if patient:
                self.change.wait_for(lambda: self.waiting or self.closed)
            if not self.waiting or self.closed:
                return None
            elsewhere = {path for other, path in self.taken.items() if other != worker}
            mine = self.taken.get(worker)
            index = min(
                range(len(self.waiting)),
                key=lambda k: (self.waiting[k].path != mine, self.waiting[k].path in elsewhere, k),
            )
            task = self.waiting.pop(index)
            self.taken[worker] = task.path
            return task

    def after(self, task: Task) -> Task | None:
        """What the same worker will probably be given next."""
        with self.change:
            return next((other for other in self.waiting if other.path == task.path), None)

    def leave(self, worker: str) -> None:
        """It will take no more."""
        with self.change:
            self.taken.pop(worker, None)

    def close(self) -> None:
        with self.change:
            self.closed = True
            self.change.notify_all()
