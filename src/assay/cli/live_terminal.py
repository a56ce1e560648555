"""A terminal taken over for a while, and given back whatever happens.

The alternate screen, the keys, what others print meanwhile, and signals that suspend or end the process. A
signal that somebody else handles is left to them. Not covered: SIGKILL; a search sent to the background after
Ctrl-Z, which waits until it is in the foreground again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, TextIO

from rich.console import Console
from rich.segment import Segment
from rich.text import Text

from assay.cli.live_keys import Keyboard

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_MOST_HELD = 10_000
"""Pieces of others' output; of more, the first are dropped."""

_TAIL = 1000
"""Characters, enough for a line."""


class TakenTerminal:
    """The terminal between `take` and `give_back`. Draws lines, and only those that changed."""

    def __init__(self, console: Console, keyboard: Keyboard | None) -> None:
        # One of its own: what others print on theirs is held back meanwhile.
        self._console = Console(file=console.file, no_color=console.no_color)
        self._keyboard = keyboard
        self._lock = threading.RLock()
        self._shown: list[list[Segment]] = []
        self._is_taken = False

    def size(self) -> tuple[int, int]:
        """Columns and lines, asked anew: what the environment says may be from before the last resize."""
        with contextlib.suppress(OSError):
            columns, lines = os.get_terminal_size(self._console.file.fileno())
            if columns > 0 and lines > 0:
                return columns, lines
        return self._console.size

    def take(self) -> None:
        with self._lock:
            if self._keyboard is not None:
                self._keyboard.open()
            self._is_taken = True
            self._shown = []
            self._console.set_alt_screen(True)
            self._console.show_cursor(False)

    def give_back(self) -> None:
        """May be called twice, and where the terminal is gone."""
        with self._lock:
            if self._keyboard is not None:
                self._keyboard.close()
            if self._is_taken:
                self._is_taken = False
                with contextlib.suppress(OSError):
                    self._console.show_cursor(True)
                    self._console.set_alt_screen(False)

    def draw(self, lines: list[Text], *, whole: bool) -> None:
        """Lines from the top; `whole` also those that should be there already."""
        with self._lock:
            if not self._is_taken:
                return
            width = max((line.cell_len for line in lines), default=1)
            options = self._console.options.update(width=width, height=None, no_wrap=True)
            drawn = [self._console.render_lines(line, options, pad=False)[0] for line in lines]
            if whole or len(drawn) != len(self._shown):
                self._shown = []
            # One write for all of them.
            with self._console:
                for place, line in enumerate(drawn):
                    if place >= len(self._shown) or line != self._shown[place]:
                        self._console.update_screen_lines([line], 0, place)
            self._shown = drawn

    def suspend(self) -> None:
        """Stops the process as Ctrl-Z does, the terminal given back meanwhile."""
        with self._lock:
            self.give_back()
            with _handled({signal.SIGTSTP: signal.SIG_DFL}):
                signal.raise_signal(signal.SIGTSTP)
            self.take()


@contextlib.contextmanager
def signals_handled(terminal: TakenTerminal) -> Iterator[None]:
    """Gives the terminal back when the process is suspended or ended from outside."""

    def suspend(number: int, frame: FrameType | None) -> None:
        terminal.suspend()

    def end(number: int, frame: FrameType | None) -> None:
        terminal.give_back()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    # Python lets only the main thread set handlers.
    is_main = threading.current_thread() is threading.main_thread()
    wanted = {signal.SIGTSTP: suspend, **dict.fromkeys(_ENDING, end)} if is_main else {}
    with _handled({n: handler for n, handler in wanted.items() if signal.getsignal(n) == signal.SIG_DFL}):
        yield


@contextlib.contextmanager
def _handled(handlers: dict) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Held:
    """Stands for a stream; what is written to it waits. All else is the stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.tail = ""
        """The end of it."""
        self._pieces: deque[str] = deque(maxlen=_MOST_HELD)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        self._pieces.append(text)
        self.tail = (self.tail + text)[-_TAIL:]
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """What waits is not to be hurried."""

    def release(self) -> None:
        with contextlib.suppress(OSError):
            self.stream.write("".join(self._pieces))
            self.stream.flush()


class HeldOutput(contextlib.AbstractContextManager[None]):
    """What is printed to the terminal meanwhile comes afterwards: drawn over, nobody would see it."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}

    @property
    def last_line(self) -> str:
        """The end of what was printed so far, without its colours."""
        lines = [line for held in self._held.values() for line in held.tail.splitlines() if line.strip()]
        return Text.from_ansi(lines[-1]).plain if lines else ""

    def __enter__(self) -> None:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is not None and stream.isatty():
                self._held[name] = _Held(stream)
                setattr(sys, name, self._held[name])

    def __exit__(self, *error: object) -> None:
        for name, held in self._held.items():
            if getattr(sys, name) is held:
                setattr(sys, name, held.stream)
            held.release()
