"""A search on the terminal while it runs: a live view with keys, or plain lines where there is no terminal.

Both take the same snapshots. Not covered: what the search does with commands, and what is printed at its end.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console

from assay.cli import figures
from assay.cli.live_controls import HELP, Controls
from assay.cli.live_keys import Keyboard
from assay.cli.live_parts import spent
from assay.cli.live_picture import Scene, picture
from assay.cli.live_terminal import HeldOutput, TakenTerminal, signals_handled
from assay.cli.live_text import Pen, clean, event_text, ratio_text, time_text
from assay.search.snapshot import BestShown, Command, Snapshot

_PACE_S = 0.125
"""Between two pictures, while somebody presses keys."""
_SNAPSHOT_S = 0.4
"""Between two that only follow the search: drawing takes time from what is measured on the same processor."""
_WHOLE_S = 10.0
"""After so long all of it is drawn again: somebody may have written over it."""
_SUMMARY_S = 30.0


class View(Protocol):
    """Whatever shows a search. Snapshots may come from any thread."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, snapshot: Snapshot) -> None: ...


def open_view(
    console: Console, plain: bool, commands: queue.Queue[Command], detail: Callable[[int], str]
) -> View:
    """The live view where there is a terminal to draw on, else plain lines."""
    can_draw = console.is_terminal and not console.is_dumb_terminal and not console.legacy_windows
    has_keys = sys.stdin is not None and sys.stdin.isatty()
    if plain or not can_draw or (has_keys and _is_in_background(sys.stdin.fileno())):
        return PlainView(console)
    return LiveView(console, commands, detail, keyboard=sys.stdin.fileno() if has_keys else None)


def _is_in_background(terminal: int) -> bool:
    """Whether taking the terminal would suspend the process."""
    try:
        return os.tcgetpgrp(terminal) != os.getpgrp()
    except OSError:
        # It is the terminal of no session: nobody suspends anybody.
        return False


class LiveView:
    """Draws the latest snapshot and takes keys, in a thread of its own."""

    def __init__(
        self,
        console: Console,
        commands: queue.Queue[Command],
        detail: Callable[[int], str],
        *,
        keyboard: int | None = None,
    ) -> None:
        """`detail` tells about a candidate; it is called from the view's thread, must be quick and not raise.
        `keyboard` is the descriptor of the terminal whose keys are taken; without it there are none."""
        self._held = HeldOutput()
        self._pen = Pen(console.encoding)
        symbols = {name: getattr(self._pen.symbols, name) for name in type(self._pen.symbols).__slots__}
        self._controls = Controls(commands, detail, HELP.format(**symbols))
        self._keyboard = Keyboard(keyboard) if keyboard is not None else None
        self._terminal = TakenTerminal(console, self._keyboard)
        self._latest = (Snapshot(), time.monotonic())
        self._drawn: tuple[object, ...] = ()
        self._drawn_at = self._whole_at = float("-inf")
        self._presses = 0
        self._ended = threading.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="live-view")
        self._work: Future[None] | None = None
        self._leaving = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._held)
            stack.enter_context(signals_handled(self._terminal))
            stack.callback(self._terminal.give_back)
            self._terminal.take()
            stack.callback(self._end_work)
            self._work = self._thread.submit(self._draw_and_listen)
            self._leaving = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving.__exit__(kind, error, trace)
        if error is None:
            self._raise_trouble()

    def show(self, snapshot: Snapshot) -> None:
        """From now on this is drawn."""
        self._latest = (snapshot, time.monotonic())
        self._raise_trouble()

    def _raise_trouble(self) -> None:
        if self._work is not None and self._work.done():
            self._work.result()

    def _end_work(self) -> None:
        self._ended.set()
        self._thread.shutdown()

    def _draw_and_listen(self) -> None:
        while not self._ended.is_set():
            try:
                self._draw_if_due()
            except OSError:
                # The terminal is gone; the search goes on without it.
                return
            self._take_keys()

    def _with_printed(self, snapshot: Snapshot) -> Snapshot:
        """Where the driver has nothing to say, what somebody printed."""
        printed = self._held.last_line
        if snapshot.message or not printed:
            return snapshot
        return replace(snapshot, message=f"printed: {printed}")

    def _take_keys(self) -> None:
        if self._keyboard is None or self._keyboard.is_gone:
            self._ended.wait(_PACE_S)
            return
        for key in self._keyboard.read(_PACE_S):
            self._presses += 1
            if key == "redraw":
                self._whole_at = float("-inf")
            else:
                self._controls.press(key, self._with_printed(self._latest[0]))

    def _draw_if_due(self) -> None:
        now, size = time.monotonic(), self._terminal.size()
        snapshot, shown_at = self._latest
        wanted = (self._presses, size)
        is_asked = wanted != self._drawn
        if now - self._drawn_at < (_PACE_S if is_asked else _SNAPSHOT_S):
            return
        elapsed_s = snapshot.elapsed_s + now - shown_at
        has_keys = self._keyboard is not None and not self._keyboard.is_gone
        scene = Scene(self._with_printed(snapshot), elapsed_s, self._controls, has_keys)
        lines = picture(self._pen, scene, *size)
        whole = now - self._whole_at >= _WHOLE_S or self._drawn[-1:] != (size,)
        self._terminal.draw(lines, whole=whole)
        self._drawn, self._drawn_at = wanted, now
        self._whole_at = now if whole else self._whole_at


class PlainView:
    """One line for each event, and now and then one for the whole. No escape codes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last_event = 0
        self._summed_at: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to give back."""

    def show(self, snapshot: Snapshot) -> None:
        """Prints what is new."""
        if self._summed_at is None:
            self._summed_at = snapshot.elapsed_s
        for event in snapshot.events:
            if event.number > self._last_event:
                self._print(event_text(event.elapsed_s, event.text))
                self._last_event = event.number
        if snapshot.elapsed_s - self._summed_at >= _SUMMARY_S:
            self._summed_at = snapshot.elapsed_s
            self._print(event_text(snapshot.elapsed_s, summary(snapshot)))

    def _print(self, line: str) -> None:
        encoding = self._console.encoding
        shown = clean(line).encode(encoding, "replace").decode(encoding)
        self._console.out(shown, highlight=False)


def summary(snapshot: Snapshot) -> str:
    """A search in one line."""
    counts = snapshot.counts
    judged = f"{counts.judged} judged: {counts.right} right ({counts.faster} faster), {counts.wrong} wrong"
    budgets = ", ".join(
        f"{budget.name} {spent(budget)}" for budget in snapshot.budgets if budget.limit is not None
    )
    said = [f"{judged}, {counts.failed} failed", _best_text(snapshot, snapshot.best), budgets]
    return "; ".join(part for part in said if part)


def _best_text(snapshot: Snapshot, best: BestShown | None) -> str:
    if best is None:
        return "nothing right yet"
    parts = [f"best #{best.id} {best.name}"]
    parts.append(ratio_text(best.ratio) if best.ratio is not None else "not timed")
    if best.time_us is not None:
        parts.append(time_text(best.time_us))
    if snapshot.limit is not None and snapshot.limit.percent is not None:
        parts.append(f"{figures.percent(snapshot.limit.percent)} of the limit")
    return ", ".join(parts)
