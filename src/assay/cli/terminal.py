"""Where output goes: a console, or a pipe that whoever reads may close early.

Not covered: standard error, which nobody closes by accident.
"""

from __future__ import annotations

import os
import sys

import click
from rich.console import Console


class Terminal(Console):
    """A console that falls silent when its pipe is closed: the exit code still has to come."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        _discard_the_rest()


def echo(text: str) -> None:
    """One line as it is, for programs to read."""
    try:
        click.echo(text)
    except BrokenPipeError:
        _discard_the_rest()


def _discard_the_rest() -> None:
    """What is still in the buffer must go somewhere, or the interpreter complains at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
