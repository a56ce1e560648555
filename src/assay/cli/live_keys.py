"""Single keys from a terminal, and the terminal as it was afterwards.

Keys have names: "up", "enter", or the character itself. Ctrl-C and Ctrl-Z stay what they are. Not covered:
what a key does, which is live_controls'; function keys and combinations, which are passed over.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import termios
import tty

_ESCAPE = "\x1b"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O[A-Za-z])")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*|O)?")
_NAMES = {
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x15": "clear",
    "\x0c": "redraw",
    "[A": "up",
    "OA": "up",
    "[B": "down",
    "OB": "down",
    "[5~": "pageup",
    "[6~": "pagedown",
    "[H": "home",
    "OH": "home",
    "[1~": "home",
    "[F": "end",
    "OF": "end",
    "[4~": "end",
}
_REST_OF_SEQUENCE_S = 0.05
"""A terminal sends a sequence at once: an escape character that stays alone this long is the Esc key."""


class KeyDecoder:
    """Makes keys of bytes, however they are cut into pieces."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="ignore").decode
        self._rest = ""

    @property
    def is_waiting(self) -> bool:
        """Whether there is the beginning of a sequence."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        text = self._rest + self._decode(data)
        self._rest = ""
        keys = []
        while text:
            found = _SEQUENCE.match(text)
            if found:
                keys.append(_NAMES.get(found.group()[1:], ""))
                text = text[found.end() :]
            elif text[0] == _ESCAPE and _UNFINISHED.fullmatch(text):
                self._rest = text
                break
            else:
                keys.append(_name(text[0]))
                text = text[1:]
        return [key for key in keys if key]

    def give_up_waiting(self) -> list[str]:
        """What there is of a sequence was the Esc key."""
        was_waiting, self._rest = self.is_waiting, ""
        return ["escape"] if was_waiting else []


def _name(character: str) -> str:
    if character == _ESCAPE:
        return "escape"
    return _NAMES.get(character, character if character.isprintable() else "")


class Keyboard:
    """The keys of one terminal, between `open` and `close`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._decoder = KeyDecoder()
        self._before: list | None = None
        self.is_gone = False
        """Whether the terminal went away."""

    def open(self) -> None:
        """Keys come at once and unseen from now on."""
        self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor)

    def close(self) -> None:
        """The terminal as it was; keys nobody read are dropped. Does nothing when it is not open."""
        if self._before is None:
            return
        before, self._before = self._before, None
        try:
            termios.tcsetattr(self._descriptor, termios.TCSAFLUSH, before)
        except termios.error:
            self.is_gone = True

    def read(self, timeout_s: float) -> list[str]:
        """The keys pressed by now; waits at most so long for the first one."""
        if not self._is_ready(timeout_s):
            return []
        keys = self._decoder.feed(self._take())
        if self._decoder.is_waiting:
            more = self._is_ready(_REST_OF_SEQUENCE_S)
            keys += self._decoder.feed(self._take()) if more else self._decoder.give_up_waiting()
        return keys

    def _is_ready(self, timeout_s: float) -> bool:
        return bool(select.select([self._descriptor], [], [], timeout_s)[0])

    def _take(self) -> bytes:
        try:
            data = os.read(self._descriptor, 1024)
        except OSError:
            data = b""
        self.is_gone = not data
        return data
