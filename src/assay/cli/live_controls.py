"""What the keys of the live view do: where the cursor is, what is asked, which page is open.

Whatever concerns the search becomes a command for the driver. Not covered: where keys come from, and how any
of it is drawn.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import dataclass

from assay.cli.live_text import clean
from assay.cli.live_tree import Row, label, ordered
from assay.search.snapshot import (
    BAN,
    CANDIDATE,
    IDEA,
    INJECT,
    PIN,
    STOP,
    UNBAN,
    UNPIN,
    Command,
    NodeKey,
    Snapshot,
    TreeNode,
)

_HINTS = ("arrows choose", "Enter detail", "p pin", "b ban", "i inject", "s stop", "? help")
_PAGE_HINTS = ("arrows scroll", "Enter, Esc or q close")
_INJECT_HINTS = ("Enter inject", "Esc leave it")
_STOP_HINTS = ("y stop", "any other key goes on")
_QUESTIONS = {INJECT: "inject which file?", STOP: "stop after the current verdict? y/n"}
_CHOOSE = "choose a candidate with the arrow keys first"
_STEPS = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -10, "pagedown": 10}
_ENDS = {"home": 0, "g": 0, "end": -1, "G": -1}
HELP = """\
arrows, j, k     choose a row of the tree; PgUp, PgDn, g and G go further
Enter            what is known of the chosen row
p                pin it: it stays a parent, and in sight; again: no longer
b                ban it: no parent and not the best; again: no longer
i                inject a file of your own as a candidate
s, q             stop after the current verdict; the best is kept
Ctrl-L           draw everything again

{best} best   {right} right   {wrong} wrong or rejected   {broken} failed   {busy} at work
{waiting} waits   {duplicate} duplicate   {idea} idea   P pinned   X banned

1.23x (1.21-1.25): the speed over that of the fastest baseline, with the
range that holds it with 95 % confidence. {cursor} marks that baseline among the
times. Ctrl-C ends at once."""


@dataclass(frozen=True, slots=True)
class Page:
    """A text to read in place of the tree."""

    title: str
    lines: tuple[str, ...]
    top: int = 0
    """The first line shown."""

    def scrolled(self, key: str) -> Page:
        if key in _ENDS:
            top = _ENDS[key] % len(self.lines)
        else:
            top = self.top + _STEPS.get(key, 0)
        return Page(self.title, self.lines, max(0, min(top, len(self.lines) - 1)))


class Controls:
    """Takes keys; holds what the view needs to draw them."""

    def __init__(self, commands: queue.Queue[Command], detail: Callable[[int], str], help_text: str) -> None:
        self._commands = commands
        self._detail = detail
        self._help = help_text
        self._asking: str | None = None
        self._said = ""
        self._message_seen = ""
        self.cursor: NodeKey | None = None
        self.page: Page | None = None
        self.typed = ""
        """The answer so far."""

    @property
    def hints(self) -> tuple[str, ...]:
        """Which keys do something now."""
        if self._asking == INJECT:
            return _INJECT_HINTS
        if self._asking == STOP:
            return _STOP_HINTS
        return _PAGE_HINTS if self.page is not None else _HINTS

    @property
    def question(self) -> str:
        """What is asked; empty if nothing is."""
        return _QUESTIONS.get(self._asking or "", "")

    def message(self, snapshot: Snapshot) -> str:
        """The newest of what the keys and the driver said; a key puts it away."""
        return self._said if snapshot.message == self._message_seen else snapshot.message

    def press(self, key: str, snapshot: Snapshot) -> None:
        self._said, self._message_seen = "", snapshot.message
        if self._asking == INJECT:
            self._type(key)
        elif self._asking == STOP:
            self._answer(key)
        elif self.page is not None:
            is_closed = key in ("enter", "escape", "q", "?")
            self.page = None if is_closed else self.page.scrolled(key)
        elif key in _STEPS or key in _ENDS:
            self._move(key, snapshot)
        elif key == "?":
            self.page = Page("keys", tuple(self._help.splitlines()))
        elif key == "i":
            self._asking, self.typed = INJECT, ""
        elif key in ("s", "q"):
            self._asking, self.typed = STOP, ""
        elif key in ("p", "b", "enter"):
            self._act(key, snapshot)

    def _send(self, command: Command, said: str) -> None:
        self._commands.put(command)
        self._said = said

    def _move(self, key: str, snapshot: Snapshot) -> None:
        rows = ordered(snapshot.tree)
        if not rows:
            return
        at = _place(rows, self.cursor)
        if key in _ENDS:
            at = _ENDS[key]
        elif at is None:
            at = next((k for k, row in enumerate(rows) if row.node.is_best), len(rows) - 1)
        else:
            at = max(0, min(at + _STEPS[key], len(rows) - 1))
        self.cursor = rows[at].node.key

    def _act(self, key: str, snapshot: Snapshot) -> None:
        node = next((node for node in snapshot.tree if node.key == self.cursor), None)
        if node is None:
            self._said = _CHOOSE
        elif key == "enter":
            text = node.note or node.label if node.kind == IDEA else self._detail(node.id)
            lines = tuple(clean(line.expandtabs()) for line in text.splitlines())
            self.page = Page(label(node), lines or ("nothing is known of it yet",))
        elif node.kind != CANDIDATE:
            self._said = "only candidates can be pinned or banned"
        else:
            self._toggle(key, node)

    def _toggle(self, key: str, node: TreeNode) -> None:
        if key == "p":
            kind = UNPIN if node.pinned else PIN
        else:
            kind = UNBAN if node.banned else BAN
        self._send(Command(kind, candidate=node.id), f"{kind} #{node.id}: asked")

    def _type(self, key: str) -> None:
        if key == "escape":
            self._asking = None
        elif key == "backspace":
            self.typed = self.typed[:-1]
        elif key == "clear":
            self.typed = ""
        elif key == "enter":
            self._asking = None
            path = self.typed.strip()
            if path:
                self._send(Command(INJECT, path=path), f"inject {path}: asked")
        elif len(key) == 1:
            self.typed += key

    def _answer(self, key: str) -> None:
        self._asking = None
        if key in ("y", "Y"):
            self._send(Command(STOP), "stopping after the current verdict")
        else:
            self._said = "the search goes on"


def _place(rows: list[Row], cursor: NodeKey | None) -> int | None:
    return next((k for k, row in enumerate(rows) if row.node.key == cursor), None)
