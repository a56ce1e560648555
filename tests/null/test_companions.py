"""Who runs below a process: children and their children, but neither the ended nor the stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from assay.sandbox import companions

FAMILY = """
import os, sys, threading, time
def start():
    born, birth = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            os.write(birth, b".")
        time.sleep(60)
    ended = os.fork()
    if ended == 0:
        os._exit(0)
    os.read(born, 1)
    os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)
    print("ready", flush=True)
if sys.argv[1] == "thread":
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
elif sys.argv[1] == "main":
    start()
else:
    print("ready", flush=True)
sys.stdin.read()
"""
Families = Callable[[str], int]


@pytest.fixture
def family() -> Iterator[Families]:
    started: list[subprocess.Popen[str]] = []

    def start(who: str) -> int:
        process = subprocess.Popen(
            [sys.executable, "-c", FAMILY, who],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        return process.pid

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def eventually(pid: int, count: int) -> set[int]:
    deadline = time.monotonic() + 20
    while len(found := companions(pid)) != count and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


@pytest.mark.parametrize("who", ["main", "thread"])
def test_all_that_live_below_are_found_and_the_ended_are_not(family: Families, who: str) -> None:
    pid = family(who)
    found = eventually(pid, 2)
    assert len(found) == 2 and pid not in found


def test_the_stopped_cannot_run(family: Families) -> None:
    pid = family("main")
    first, second = eventually(pid, 2)
    os.kill(first, signal.SIGSTOP)
    assert eventually(pid, 1) == {second}
    os.kill(first, signal.SIGCONT)
    assert eventually(pid, 2) == {first, second}


def test_alone_it_has_no_company(family: Families) -> None:
    assert companions(family("nobody")) == set()
