"""The line in front of the judge: one job at a time, first come, first served.

Everything that runs problem code or judges happens in one thread, the daemon's main one: problem code
patches torch and draws from process-wide generators, so that a second thread beside it would change
verdicts, and only the main thread can be interrupted by a signal. Two kinds of job stand in line: openings (a
problem is read, milliseconds) go before verdicts, so that the next candidates can be compiled while the
device is busy.

Waiting costs nothing: a client's thread sleeps in `poll` until its job moves or its client hangs up. Threads
that wake by the clock would take the interpreter from a judge that is timing.

Not covered: priorities between clients, and interrupting a job that runs.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from assay.records.errors import AssayError, UserError

T = TypeVar("T")
_HUNG_UP = select.POLLHUP | select.POLLERR


class Job(Generic[T]):
    """Work for the main thread, and the means to wait for it from another one."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._answer: list[T] = []
        self._moved_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.error: AssayError | None = None

    def run(self) -> None:
        """Do it. What Assay raises on purpose is the client's; anything else ends the daemon."""
        try:
            self._answer.append(self._work())
        except AssayError as error:
            self.error = error
        except SystemExit:
            self.error = UserError("the problem's code called sys.exit(): there is no verdict")

    def result(self) -> T:
        if self.error is not None:
            raise self.error
        return self._answer[0]

    def wake(self) -> None:
        """Let the thread that waits look again."""
        os.eventfd_write(self._moved_fd, 1)

    def sleep(self, client: socket.socket | None) -> bool:
        """Wait until the job moved; False if the client hung up.

        A client that closed only its sending half still waits for its answer, so the end of its stream is no
        hang-up: only what `poll` reports unasked counts.
        """
        poll = select.poll()
        poll.register(self._moved_fd, select.POLLIN)
        if client is not None:
            poll.register(client, 0)
        events = dict(poll.poll())
        if events.pop(self._moved_fd, 0):
            os.eventfd_read(self._moved_fd)
        return not any(flags & _HUNG_UP for flags in events.values())

    def close(self) -> None:
        os.close(self._moved_fd)


@dataclass(frozen=True, slots=True)
class Place:
    """How far a job has come."""

    state: str
    """"waiting", "running" or "done"."""
    ahead: int = 0
    """Jobs of its kind before a waiting one, the running one included."""


class Line:
    """Jobs in the order in which they run."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._openings: deque[Job[Any]] = deque()
        self._verdicts: deque[Job[Any]] = deque()
        self._running: Job[Any] | None = None

    def join(self, job: Job[Any], *, opening: bool = False) -> None:
        with self._changed:
            (self._openings if opening else self._verdicts).append(job)
            self._changed.notify()

    def leave(self, job: Job[Any]) -> bool:
        """Take a job out of the line; False if it has started."""
        with self._changed:
            queue = self._queue_of(job)
            if queue is None:
                return False
            queue.remove(job)
            self._wake_all()
            return True

    def take(self, timeout_s: float | None) -> Job[Any] | None:
        """The next job, or None if there was none for so long. For the main thread."""
        with self._changed:
            self._changed.wait_for(lambda: self._openings or self._verdicts, timeout_s)
            queue = self._openings or self._verdicts
            if not queue:
                return None
            self._running = queue.popleft()
            self._running.wake()
            self._wake_all()
            return self._running

    def finish(self, job: Job[Any]) -> None:
        """The job that was taken has run."""
        with self._changed:
            self._running = None
            job.wake()

    def place_of(self, job: Job[Any]) -> Place:
        """Where a job that has joined stands. Asked under the lock: a job seen done is nobody else's."""
        with self._changed:
            if job is self._running:
                return Place("running")
            queue = self._queue_of(job)
            if queue is None:
                return Place("done")
            return Place("waiting", queue.index(job) + (self._running is not None))

    def __len__(self) -> int:
        with self._changed:
            return len(self._openings) + len(self._verdicts) + (self._running is not None)

    def _queue_of(self, job: Job[Any]) -> deque[Job[Any]] | None:
        return next((queue for queue in (self._openings, self._verdicts) if job in queue), None)

    def _wake_all(self) -> None:
        for job in (*self._openings, *self._verdicts):
            job.wake()
