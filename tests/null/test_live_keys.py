"""Keys of the live view: how they are read, what they do, and the terminal afterwards."""

from __future__ import annotations

import contextlib
import io
import os
import queue
import select
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TextIO

import pytest
from live_demo import detail, drawn, search
from rich.console import Console

from assay.cli.live_controls import HELP, Controls
from assay.cli.live_keys import KeyDecoder
from assay.cli.live_tree import ordered
from assay.cli.live_view import LiveView, PlainView, open_view
from assay.search.snapshot import BAN, IDEA, INJECT, PIN, STOP, UNBAN, UNPIN, Command, Snapshot

LIMIT_S = 20.0
"""Until which something in another thread has to have happened."""


def test_keys_come_whole_however_their_bytes_are_cut() -> None:
    sent = "jé".encode() + b"\x1b[A\x1bOB\x1b[6~\r\x7f\x1b[1;5C\x0c?"
    wanted = ["j", "é", "up", "down", "pagedown", "enter", "backspace", "redraw", "?"]
    assert KeyDecoder().feed(sent) == wanted
    decoder = KeyDecoder()
    assert [key for k in range(len(sent)) for key in decoder.feed(sent[k : k + 1])] == wanted


def test_a_lone_escape_is_a_key_once_nothing_follows() -> None:
    decoder = KeyDecoder()
    assert decoder.feed(b"\x1b") == [] and decoder.is_waiting
    assert decoder.give_up_waiting() == ["escape"] and not decoder.is_waiting
    assert decoder.feed(b"\x1bx") == ["escape", "x"]


@dataclass
class Desk:
    """Controls with what they sent."""

    snapshot: Snapshot
    commands: queue.Queue[Command] = field(default_factory=queue.Queue)

    def __post_init__(self) -> None:
        self.controls = Controls(self.commands, detail, HELP)

    def press(self, *keys: str) -> list[Command]:
        for key in keys:
            self.controls.press(key, self.snapshot)
        return [self.commands.get() for _ in range(self.commands.qsize())]


def test_pinning_and_banning_say_which_candidate() -> None:
    desk = Desk(search(10))
    assert desk.press("p", "b") == [] and "arrow keys" in desk.controls.message(desk.snapshot)
    best = desk.snapshot.best
    assert best is not None
    assert desk.press("j", "p", "b") == [Command(PIN, best.id), Command(BAN, best.id)]
    tree = tuple(replace(node, pinned=True, banned=True) for node in desk.snapshot.tree)
    desk.snapshot = replace(desk.snapshot, tree=tree)
    assert desk.press("p", "b") == [Command(UNPIN, best.id), Command(UNBAN, best.id)]


def test_ideas_are_neither_pinned_nor_banned_but_can_be_read() -> None:
    desk = Desk(search(10))
    assert desk.press("g") == [] and desk.controls.cursor == (IDEA, 1)
    assert desk.press("p", "b") == [] and "only candidates" in desk.controls.message(desk.snapshot)
    desk.press("enter")
    assert desk.controls.page is not None and "halve the traffic" in desk.controls.page.lines[0]


def test_the_cursor_reaches_every_row_and_stays_within() -> None:
    desk = Desk(search(20))
    rows = [row.node.key for row in ordered(desk.snapshot.tree)]
    desk.press("home")
    seen = [desk.controls.cursor]
    for _ in range(len(rows) + 2):
        desk.press("down")
        seen.append(desk.controls.cursor)
    assert list(dict.fromkeys(seen)) == rows
    desk.press(*["pageup"] * 5)
    assert desk.controls.cursor == rows[0]
    desk.press("G", "k")
    assert desk.controls.cursor == rows[-2]


def test_a_path_is_typed_and_corrected() -> None:
    desk = Desk(search(3))
    assert desk.press("i", *"kernels/é.cuu", "backspace") == []
    assert "inject which file? kernels/é.cu" in "\n".join(drawn(desk.snapshot, 80, 24, desk.controls))
    assert desk.press("enter") == [Command(INJECT, path="kernels/é.cu")]
    assert desk.press("i", *"psq", "escape") == [] and desk.controls.question == ""
    assert desk.press("i", *"old", "clear", *"new", "enter") == [Command(INJECT, path="new")]
    assert desk.press("i", "enter") == []


def test_the_end_of_a_long_path_is_seen() -> None:
    desk = Desk(search(3))
    desk.press("i", *("folder/" * 30), *"last.cu")
    for width in (40, 80, 160):
        assert any("last.cu" in line for line in drawn(desk.snapshot, width, 24, desk.controls))


@pytest.mark.parametrize("key", ["s", "q"])
def test_stopping_asks_first(key: str) -> None:
    desk = Desk(search(3))
    assert desk.press(key, "n") == [] and "goes on" in desk.controls.message(desk.snapshot)
    assert desk.press(key) == []
    assert "stop after the current verdict? y/n" in "\n".join(drawn(desk.snapshot, 80, 24, desk.controls))
    assert desk.press("y") == [Command(STOP)]


def test_detail_and_help_are_pages_that_scroll_and_close() -> None:
    desk = Desk(search(10))
    desk.press("j", "enter")
    text = "\n".join(drawn(desk.snapshot, 80, 24, desk.controls))
    assert "status: passed" in text and "further down" in text and "ideas and candidates" not in text
    desk.press("G")
    assert "finding 39" in "\n".join(drawn(desk.snapshot, 80, 24, desk.controls))
    assert desk.press("q") == [] and desk.controls.page is None
    desk.press("?")
    assert "stop after the current verdict" in "\n".join(drawn(desk.snapshot, 80, 24, desk.controls))
    desk.press("escape")
    assert desk.controls.page is None and desk.controls.question == ""


def test_a_key_puts_a_message_away_and_a_new_one_comes_through() -> None:
    desk = Desk(replace(search(3), message="there is no file x.cu"))
    assert desk.controls.message(desk.snapshot) == "there is no file x.cu"
    desk.press("j")
    assert desk.controls.message(desk.snapshot) == ""
    assert desk.controls.message(replace(desk.snapshot, message="another")) == "another"


@dataclass
class FakeTerminal:
    """A pseudo terminal with somebody who reads what is drawn and presses keys."""

    master: int
    slave: int
    file: TextIO
    """What is written to it is drawn."""
    is_over: threading.Event = field(default_factory=threading.Event)
    screen: bytearray = field(default_factory=bytearray)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def press(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def read(self) -> None:
        while not self.is_over.is_set():
            if select.select([self.master], [], [], 0.02)[0]:
                with self.changed:
                    self.screen += os.read(self.master, 65536)
                    self.changed.notify_all()

    def wait_for(self, text: bytes, start: int = 0) -> None:
        with self.changed:
            found = self.changed.wait_for(lambda: text in self.screen[start:], LIMIT_S)
        assert found, f"{text!r} did not come: {bytes(self.screen[start:])!r}"


@contextlib.contextmanager
def fake_terminal() -> Iterator[FakeTerminal]:
    master, slave = os.openpty()
    with os.fdopen(slave, "w", encoding="utf-8") as file:
        terminal = FakeTerminal(master, slave, file)
        reader = threading.Thread(target=terminal.read)
        reader.start()
        try:
            yield terminal
        finally:
            terminal.is_over.set()
            reader.join()
            os.close(master)


@pytest.fixture
def terminal() -> Iterator[FakeTerminal]:
    with fake_terminal() as made:
        yield made


def live(
    terminal: FakeTerminal, commands: queue.Queue[Command], about: Callable[[int], str] = detail
) -> LiveView:
    return LiveView(Console(file=terminal.file), commands, about, keyboard=terminal.slave)


def test_keys_of_a_terminal_become_commands(terminal: FakeTerminal) -> None:
    before = termios.tcgetattr(terminal.slave)
    commands: queue.Queue[Command] = queue.Queue()
    snapshot = search(10)
    assert snapshot.best is not None
    with live(terminal, commands) as view:
        view.show(snapshot)
        terminal.wait_for(b"softmax")
        assert not termios.tcgetattr(terminal.slave)[3] & termios.ICANON
        assert termios.tcgetattr(terminal.slave)[3] & termios.ISIG, "Ctrl-C stays what it is"
        terminal.press(b"\x1b[Bpbia.cu\x7fu\rsy")
        got = [commands.get(timeout=LIMIT_S) for _ in range(4)]
        terminal.wait_for(b"stopping after")
    best = snapshot.best.id
    assert got == [Command(PIN, best), Command(BAN, best), Command(INJECT, path="a.cu"), Command(STOP)]
    assert termios.tcgetattr(terminal.slave) == before
    terminal.wait_for(b"\x1b[?1049l")
    assert terminal.screen.index(b"\x1b[?1049h") < terminal.screen.index(b"\x1b[?1049l")
    assert terminal.screen.rindex(b"\x1b[?25h") > terminal.screen.rindex(b"\x1b[?25l")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_the_terminal_is_as_before_after_an_error(terminal: FakeTerminal, error: type[BaseException]) -> None:
    before = termios.tcgetattr(terminal.slave)
    with pytest.raises(error), live(terminal, queue.Queue()) as view:
        view.show(search(3))
        assert termios.tcgetattr(terminal.slave) != before
        raise error
    assert termios.tcgetattr(terminal.slave) == before
    terminal.wait_for(b"\x1b[?1049l")


def test_trouble_while_drawing_comes_out_and_leaves_the_terminal_as_it_was(terminal: FakeTerminal) -> None:
    before = termios.tcgetattr(terminal.slave)

    def broken(candidate: int) -> str:
        raise RuntimeError("no detail")

    with pytest.raises(RuntimeError, match="no detail"), live(terminal, queue.Queue(), broken) as view:
        view.show(search(3))
        terminal.wait_for(b"softmax")
        terminal.press(b"j\r")
        tries = threading.Event()
        for _ in range(int(LIMIT_S / 0.05)):
            view.show(search(3))
            tries.wait(0.05)
    assert termios.tcgetattr(terminal.slave) == before


def test_what_did_not_change_is_not_drawn_again(terminal: FakeTerminal) -> None:
    snapshot = search(30)
    with live(terminal, queue.Queue()) as view:
        view.show(snapshot)
        terminal.wait_for(b"softmax_30")
        start = len(terminal.screen)
        terminal.press(b"s")
        terminal.wait_for(b"y/n", start)
        assert b"ideas and candidates" not in terminal.screen[start:]
        terminal.press(b"n\x0c")
        terminal.wait_for(b"ideas and candidates", start)


def test_what_others_print_is_mentioned_at_once_and_printed_afterwards(
    terminal: FakeTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal.file)
    console = Console(stderr=True)
    with LiveView(console, queue.Queue(), detail) as view:
        view.show(search(3))
        terminal.wait_for(b"softmax")
        console.print("[red]careful[/] now")
        terminal.wait_for(b"printed: careful now")
        end = len(terminal.screen)
    assert sys.stderr is terminal.file
    terminal.wait_for(b"careful", end)
    terminal.wait_for(b" now", end)
    assert terminal.screen.index(b"\x1b[?1049l", end) < terminal.screen.index(b"careful", end)


def test_a_terminal_that_goes_away_does_not_end_the_search() -> None:
    master, slave = os.openpty()
    file = os.fdopen(slave, "w", encoding="utf-8")
    with LiveView(Console(file=file), queue.Queue(), detail, keyboard=slave) as view:
        view.show(search(3))
        assert select.select([master], [], [], LIMIT_S)[0], "nothing was drawn"
        os.close(master)
        for candidates in range(4, 24):
            view.show(search(candidates))
            threading.Event().wait(0.05)
    # What is left in its buffer has nowhere to go.
    with contextlib.suppress(OSError):
        file.close()


def test_which_view_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(console: Console, plain: bool) -> type:
        return type(open_view(console, plain, queue.Queue(), detail))

    monkeypatch.setenv("TERM", "xterm-256color")
    with fake_terminal() as terminal:
        assert opened(Console(file=terminal.file), False) is LiveView
        assert opened(Console(file=terminal.file), True) is PlainView
        monkeypatch.setenv("TERM", "dumb")
        assert opened(Console(file=terminal.file), False) is PlainView
    assert opened(Console(file=io.StringIO()), False) is PlainView
