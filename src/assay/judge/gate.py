"""The judge's own clock on the device: events of its own around all that a child does.

The child has queued everything behind a gate (worker/gate.py) before its inputs exist. Between its events the
judge lays the inputs, flushes the caches, opens the gate and waits for the answers. There is nothing that the
child could begin before, leave out, or tell. Processes take turns on a device: what the child works on in
between takes its time, too. Everybody pays the same for the turns.

Whoever says too early that it is done has no answer in the mailbox, which is copied right behind the wait.

Not covered: calls that wait for the device within themselves; they get no time here.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from assay.worker.gate import done_of, go_of, queue_wait, queue_write

POLL_S = 20e-6


class Gate:
    """The judge's end of a gate."""

    def __init__(self, shared: torch.Tensor) -> None:
        self._go, self._done = go_of(shared), done_of(shared)
        self._go.zero_()
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        self._number = 0

    def close(self) -> int:
        """The number that opens it next."""
        self._number += 1
        return self._number

    def open(self, lay: Callable[[], None], flush: Callable[[], None]) -> None:
        """Queue all that lies between the events."""
        self._done.fill_(self._number - 1)  # whatever somebody wrote there
        flush()  # keeps the device busy until the rest is queued
        self._events[0].record()
        lay()
        flush()
        queue_write(self._go, self._number)
        queue_wait(self._done, self._number)
        self._events[1].record()

    def passed_us(self, limit_s: float) -> float | None:
        """Between the events; None where nobody was done by then, and our own stream still waits."""
        deadline = time.monotonic() + limit_s
        while not self._events[1].query():
            if time.monotonic() > deadline:
                return None
            time.sleep(POLL_S)
        return self._events[0].elapsed_time(self._events[1]) * 1e3

    def give_up(self) -> None:
        """Let our own stream go on, when nobody is left who could write."""
        with torch.cuda.stream(torch.cuda.Stream()):
            queue_write(self._done, self._number)
        torch.cuda.synchronize()
