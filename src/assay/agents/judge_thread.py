"""The one thread that judges for the tools: one job at a time, first come, first served.

It does not keep the process alive. What Assay raises on purpose goes to whoever asked. Anything else ends the
thread with its traceback on stderr, whoever asked is told so, and the next job starts a new thread.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from assay.records import AssayError, JudgeFault, UserError

T = TypeVar("T")


class JudgeThread:
    """Jobs in line, and who does them."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._unfinished = 0

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Stand in line, from any thread; a job that is cancelled before its turn is left out."""
        future: Future[T] = Future()
        with self._lock:
            self._unfinished += 1
            self._jobs.put((future, job))
            if self._thread is None:
                self._start()
        return future

    @property
    def unfinished(self) -> int:
        """Jobs that wait or run."""
        return self._unfinished

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="judge", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while True:
            future, job = self._jobs.get()
            foreseen = False
            try:
                if future.set_running_or_notify_cancel():
                    _do(future, job)
                foreseen = True
            finally:
                with self._lock:
                    self._unfinished -= 1
                    if not foreseen:  # this thread ends
                        self._thread = None
                        if self._unfinished:
                            self._start()


def _do(future: Future[Any], job: Callable[[], Any]) -> None:
    try:
        future.set_result(job())
    except AssayError as error:
        future.set_exception(error)
    except SystemExit as left:  # problem code runs here
        error = UserError("the problem's code called sys.exit(): there is no verdict")
        error.__cause__ = left
        future.set_exception(error)
    finally:
        if not future.done():  # a bug of ours ends this thread
            future.set_exception(JudgeFault("a bug of Assay's: the server's stderr has the traceback"))
