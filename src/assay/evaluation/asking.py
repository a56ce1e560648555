"""Threads that ask a source for candidates: a model takes a minute to answer, and many may be asked at once.

Unlike `ThreadPoolExecutor`'s they do not keep the process alive: whoever interrupts twice gets out.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Generic, TypeVar

from assay.records import AssayError, JudgeFault

_Answer = TypeVar("_Answer")


class Asking(Generic[_Answer]):
    """So many threads, and what they are to ask."""

    def __init__(self, threads: int) -> None:
        self._waiting: queue.SimpleQueue[tuple[Future[_Answer], Callable[..., _Answer], tuple[Any, ...]]]
        self._waiting = queue.SimpleQueue()
        self._asked: list[Future[_Answer]] = []
        for _ in range(threads):
            threading.Thread(target=self._ask_on, daemon=True).start()

    def ask(self, propose: Callable[..., _Answer], *arguments: Any) -> Future[_Answer]:
        future: Future[_Answer] = Future()
        self._asked = [one for one in self._asked if not one.done()] + [future]
        self._waiting.put((future, propose, arguments))
        return future

    def end(self, on_waiting: Callable[[int], None]) -> None:
        """Ask nothing more; whoever is being asked is waited for, since the answer may be paid for."""
        running = [future for future in self._asked if not future.cancel() and not future.done()]
        if running:
            on_waiting(len(running))
            wait(running)

    def _ask_on(self) -> None:
        while True:
            future, propose, arguments = self._waiting.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(propose(*arguments))
            except AssayError as error:
                future.set_exception(error)
            finally:
                if not future.done():  # a bug of ours ends this thread, with its traceback
                    future.set_exception(JudgeFault("a source of candidates failed: see the lines above"))
