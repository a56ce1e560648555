"""Runs an action in a confined process, for the tests of the sandbox: real forks, on the real kernel."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.records.layers import Layer
from assay.sandbox import (
    Limits,
    Plan,
    confine,
    device_paths,
    furnish,
    isolate,
    kill_all,
    readable_paths,
    unused_uid,
)

MIB = 1 << 20
NOBODY = 65534
SOURCE = Path(assay.__file__).resolve()
LIMITS = Limits(
    memory_bytes=1 << 30,
    address_space_bytes=None,
    processes=32,
    file_bytes=16 * MIB,
    scratch_bytes=8 * MIB,
    open_files=128,
)

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: changes the user")


@dataclass
class Confined:
    """A confined process that has done its action and waits to be killed."""

    pid: int
    layers: dict[str, Layer]
    result: Any

    def need(self, *names: str) -> None:
        for name in names:
            if not self.layers[name].active:
                pytest.skip(f"{name}: {self.layers[name].detail}")


def second_process(plan: Plan, layers: list[Layer], action: Callable[[], object], pipe: int) -> None:
    try:
        layers = layers + furnish(plan) + confine(plan)
        report = {"layers": [[one.name, one.active, one.detail] for one in layers], "result": action()}
    except BaseException:
        report = {"error": traceback.format_exc()}
    os.write(pipe, json.dumps(report).encode() + b"\n")
    os.close(pipe)
    signal.pause()


def first_process(plan: Plan, action: Callable[[], object], pipe: int, user: int | None) -> None:
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    layers = isolate(plan)
    child = os.fork()
    if child == 0:
        try:
            second_process(plan, layers, action, pipe)
        finally:
            os._exit(1)
    os.close(pipe)
    os.waitpid(child, 0)
    signal.pause()


@contextlib.contextmanager
def confined(plan: Plan, action: Callable[[], object], user: int | None = None) -> Iterator[Confined]:
    """Run the action under the plan; `user` is whom the whole sequence starts as."""
    reading, writing = os.pipe()
    first = os.fork()
    if first == 0:
        try:
            os.close(reading)
            first_process(plan, action, writing, user)
        finally:
            os._exit(1)
    os.close(writing)
    text = b""
    try:
        # Up to the line's end and not the file's: what the action leaves running holds the pipe open too.
        while not text.endswith(b"\n") and select.select([reading], [], [], 15)[0]:
            chunk = os.read(reading, 1 << 16)
            text += chunk
            if not chunk:
                break
        report = json.loads(text)
        assert "error" not in report, report.get("error")
        yield Confined(first, {row[0]: Layer(*row) for row in report["layers"]}, report["result"])
    finally:
        os.close(reading)
        kill_all(first, plan.uid)
        os.waitpid(first, 0)


def make_plan(tmp_path: Path) -> Plan:
    # pytest's folder is 0700: the scratch folder lies below one that the child's user cannot enter.
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return Plan(str(scratch), readable_paths(), device_paths(), unused_uid(), LIMITS)


def code_of(action: Callable[[], object]) -> str:
    """The name of the error an action fails with; empty when it works."""
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return ""


def alive_under(uid: int) -> int:
    count = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            text = status.read_text()
            count += f"Uid:\t{uid}\t" in text and "State:\tZ" not in text
    return count


def start_daemon() -> int:
    """Fork twice, leave the session, ignore signals, and stay; the usual way to outlive a harness."""
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            while True:
                time.sleep(0.01)
        os._exit(0)
    os.waitpid(first, 0)
    return first


def refuse(flags: int) -> None:
    raise PermissionError(errno.EPERM, f"unshare {flags:x}: refused by the test")
