"""Ctrl-C, which a terminal sends to every process that a command has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "layernorm"
PATIENCE_S = 60


def test_an_interrupted_check_ends_in_one_line() -> None:
    files = [EXAMPLE / "problem.py", EXAMPLE / "kernel.cpp"]
    command = [sys.executable, "-m", "assay", "check", *map(str, files), "--device", "cpu"]
    command += ["--no-daemon", "--no-speed"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        _wait_for_a_child(running.pid)
        os.killpg(running.pid, signal.SIGINT)
        _, told = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, told.strip()) == (2, "assay: interrupted")


def _wait_for_a_child(pid: int) -> None:
    end = time.monotonic() + PATIENCE_S
    tasks = Path(f"/proc/{pid}/task")
    while not any(task.joinpath("children").read_text() for task in tasks.iterdir()):
        assert time.monotonic() < end, "no child was started"
        time.sleep(0.05)


def test_an_interrupt_of_a_string_that_runs_has_the_same_code(tmp_path: Path) -> None:
    """Python itself would end a module by the signal then, whoever has answered the interrupt."""
    (tmp_path / "interrupted.py").write_text("""
import click
from assay.cli import main

def interrupted(**_):
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        raise click.Abort from None

main.cli.main = interrupted
main.main()
""")
    command = [sys.executable, "-m", "interrupted"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (2, "assay: interrupted")
