"""A process that was made to stand still has come to a stop, even out of the midst of the system's work."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from assay.sandbox import cpu_s, rest, stand_still

# The system fills such memory in one go, which no signal but a deadly one cuts short.
IN_THE_SYSTEM = """
import mmap
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
print("ready", flush=True)
while True:
    mmap.mmap(-1, 1 << 25, flags=flags).close()
"""
BESIDE_IT = """
import mmap, threading, time
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
def fill():
    while True:
        mmap.mmap(-1, 1 << 27, flags=flags).close()
threading.Thread(target=fill, daemon=True).start()
print("ready", flush=True)
while True:
    time.sleep(1)
"""
SELDOM = "import os; os.nice(5)" + BESIDE_IT.replace("1 << 27", "1 << 28")
WAKING = """
import signal, os, threading
def wake():
    while True:
        os.kill(os.getpid(), signal.SIGCONT)
threading.Thread(target=wake, daemon=True).start()
print("ready", flush=True)
while True:
    pass
"""


@pytest.fixture
def process(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", request.param], stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None and started.stdout.readline() == "ready\n"
        yield started
        started.kill()


@pytest.mark.parametrize("process", [IN_THE_SYSTEM, BESIDE_IT], ids=["one", "another"], indirect=True)
def test_it_has_stopped_by_then(process: subprocess.Popen[str]) -> None:
    _stops(process)


def _stops(process: subprocess.Popen[str]) -> None:
    for _ in range(5):
        stand_still(process.pid)
        before = cpu_s(process.pid)
        time.sleep(0.1)
        assert cpu_s(process.pid) == before
        process.send_signal(signal.SIGCONT)
        time.sleep(0.02)


@pytest.mark.parametrize("process", [SELDOM], indirect=True)
def test_it_has_stopped_by_then_on_a_busy_processor(process: subprocess.Popen[str]) -> None:
    """Where what the system does for it takes a second, of which it has a processor for some tenths."""
    place = {min(os.sched_getaffinity(process.pid))}
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as rival:
        try:
            for pid in (rival.pid, *map(int, os.listdir(f"/proc/{process.pid}/task"))):
                os.sched_setaffinity(pid, place)
            _stops(process)
        finally:
            rival.kill()


@pytest.mark.parametrize("process", [WAKING], indirect=True)
def test_whoever_does_not_stop_is_not_waited_for_without_end(process: subprocess.Popen[str]) -> None:
    stand_still(process.pid)


def test_nobody_is_there() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    stand_still(ended.pid)


@pytest.mark.parametrize(("patience_s", "waited"), [(60.0, True), (0.001, False)])
def test_threads_of_our_own_are_waited_for_but_not_without_end(patience_s: float, waited: bool) -> None:
    """As torch's are, which spin for a while after their work."""
    over = threading.Event()

    def work() -> None:
        hashlib.pbkdf2_hmac("sha1", b"", b"", 2_000_000)  # lets the others run meanwhile
        over.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert thread.ident is not None
    while time.clock_gettime(time.pthread_getcpuclockid(thread.ident)) < 0.01:  # not yet at it
        time.sleep(0.001)
    rest(patience_s)
    assert over.is_set() == waited
    thread.join()
