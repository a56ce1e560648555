"""The live view in a real terminal: tmux draws it, sends keys and shows what is left afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_demo import PRINTED

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

DEMO = Path(__file__).parents[1] / "null" / "live_demo.py"
LIMIT_S = 60.0


class Tmux:
    """One terminal of a server of its own."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def run(self, *words: str) -> str:
        command = ["tmux", "-u", "-f", "/dev/null", "-S", str(self._socket), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout

    def press(self, *keys: str) -> None:
        self.run("send-keys", *keys)

    def screen(self) -> str:
        return self.run("capture-pane", "-p")

    def wait_for(self, *texts: str, gone: str = "") -> str:
        """The screen once it shows all of these, and not what is to be gone."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            screen = self.screen()
            if all(text in screen for text in texts) and (not gone or gone not in screen):
                return screen
            time.sleep(0.1)
        pytest.fail(f"waited for {texts}, without {gone!r}:\n{self.screen()}")


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    terminal = Tmux(tmp_path / "socket")
    terminal.run("new-session", "-d", "-x", "80", "-y", "24", "env PS1='ready> ' TERM=screen sh -i")
    terminal.wait_for("ready>")
    try:
        yield terminal
    finally:
        terminal.run("kill-server")


def test_a_search_is_watched_steered_suspended_and_stopped(tmux: Tmux) -> None:
    tmux.press(f"{sys.executable} {DEMO} 60", "Enter")
    screen = tmux.wait_for("best #37", "ideas and candidates (63)", "? help", gone="ready>")
    assert "unknown of $5.00" in screen and "#60 softmax_60" in screen
    tmux.press("Down", "p")
    tmux.wait_for("done: pin 37", "best pinned")
    tmux.press("i", "a.cux", "BSpace", "Enter")
    tmux.wait_for("there is no file a.cu", gone="a.cux")
    tmux.run("resize-window", "-x", "160", "-y", "50")
    tmux.wait_for("proposers", "cost unknown", "no such operation")
    tmux.press("C-z")
    tmux.wait_for("ready>", gone="ideas and candidates")
    tmux.press("fg", "Enter")
    tmux.wait_for("ideas and candidates", gone="ready>")
    tmux.press("q", "y")
    screen = tmux.wait_for("the search was stopped", gone="ideas and candidates")
    assert screen.index(PRINTED) < screen.index("the search was stopped")


def test_a_search_that_is_ended_from_outside_leaves_a_usable_terminal(tmux: Tmux, tmp_path: Path) -> None:
    tmux.press(
        f"cd {tmp_path}; stty -g > before; sh -c 'echo $$ > pid; exec {sys.executable} {DEMO} 60'", "Enter"
    )
    tmux.wait_for("ideas and candidates (63)", gone="ready>")
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)
    tmux.wait_for("Terminated", gone="ideas and candidates")
    # Typed in two pieces, so that only the answer holds the word.
    tmux.press("stty -g > after; echo com''pared", "Enter")
    tmux.wait_for("compared")
    assert (tmp_path / "after").read_text() == (tmp_path / "before").read_text()
    assert tmux.run("display-message", "-p", "#{cursor_flag}").strip() == "1"
