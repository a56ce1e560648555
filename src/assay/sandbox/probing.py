"""Which layers really work on this machine: run the whole sequence once and try what it must forbid.

Return codes are not enough: a layer counts as active when it was applied and the forbidden thing was refused.

Not covered: each single right and call (the tests try more), and the devices.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from assay.records.errors import JudgeFault
from assay.records.layers import Layer
from assay.sandbox import syscalls
from assay.sandbox.confinement import confine
from assay.sandbox.mounts import furnish
from assay.sandbox.namespaces import isolate
from assay.sandbox.paths import device_paths, readable_paths
from assay.sandbox.plan import LAYERS, Limits, Plan
from assay.sandbox.processes import kill_all, unused_uid

_PATIENCE_S = 20.0
_LIMITS = Limits(
    memory_bytes=1 << 30,
    address_space_bytes=None,
    processes=8,
    file_bytes=256 << 10,
    scratch_bytes=1 << 20,
    open_files=64,
)
_IPC_PRIVATE = 0
_IPC_RMID = 0


@dataclass(frozen=True, slots=True)
class _Bait:
    """What the child must not reach, all of it open to everyone but for the sandbox."""

    secret: str
    """A file for all to read."""
    open_folder: str
    """A folder for all to write into."""
    marker: str
    """A file in the scratch folder of the host."""
    port: int
    segment: int
    """A System V segment."""


def probe() -> list[Layer]:
    """Every layer in the order of LAYERS, active only if it refused what it must refuse."""
    home = tempfile.mkdtemp(prefix="assay-probe-")
    try:
        with _bait(home) as bait:
            uid = unused_uid()
            plan = Plan(os.path.dirname(bait.marker), readable_paths(), device_paths(), uid, _LIMITS)
            report = _run(plan, bait)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return [_merge(name, report) for name in LAYERS]


def _merge(name: str, report: dict[str, list[object]]) -> Layer:
    if name not in report:
        return Layer(name, False, "not reported")
    active, detail, failure = report[name]
    return Layer(name, bool(active) and not failure, f"{detail}; but {failure}" if failure else str(detail))


@contextlib.contextmanager
def _bait(home: str) -> Iterator[_Bait]:
    os.chmod(home, 0o755)
    scratch, open_folder = os.path.join(home, "scratch"), os.path.join(home, "open")
    os.mkdir(scratch)
    os.mkdir(open_folder)
    os.chmod(open_folder, 0o777)
    secret, marker = os.path.join(home, "secret"), os.path.join(scratch, "marker")
    for path in (secret, marker):
        with open(path, "w", encoding="utf-8") as file:
            file.write("secret")
        os.chmod(path, 0o644)
    libc = ctypes.CDLL(None)
    segment = libc.shmget(_IPC_PRIVATE, 4096, 0o1666)
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            yield _Bait(secret, open_folder, marker, listener.getsockname()[1], segment)
        finally:
            libc.shmctl(segment, _IPC_RMID, None)


def _run(plan: Plan, bait: _Bait) -> dict[str, list[object]]:
    reading, writing = os.pipe()
    first = os.fork()
    if first == 0:
        try:
            os.close(reading)
            _first_process(plan, bait, writing)
        finally:
            os._exit(1)
    os.close(writing)
    try:
        text = _read_all(reading)
    finally:
        os.close(reading)
        kill_all(first, plan.uid)
        os.waitpid(first, 0)
    try:
        report = json.loads(text)
    except json.JSONDecodeError as error:
        raise JudgeFault(f"the probe of the sandbox ended without a report: {text[:200]!r}") from error
    if "error" in report:
        raise JudgeFault(f"the probe of the sandbox failed: {report['error']}")
    return report


def _read_all(descriptor: int) -> bytes:
    deadline = time.monotonic() + _PATIENCE_S
    text = b""
    while select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            break
        text += chunk
    return text


def _first_process(plan: Plan, bait: _Bait, writing: int) -> None:
    layers = isolate(plan)
    second = os.fork()
    if second == 0:
        try:
            report: dict[str, object] = {}
            try:
                report.update(_second_process(plan, bait, layers))
            except (OSError, JudgeFault) as error:
                report["error"] = f"{type(error).__name__}: {error}"
            os.write(writing, json.dumps(report).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(second, 0)


def _second_process(plan: Plan, bait: _Bait, layers: list[Layer]) -> dict[str, list[object]]:
    failures: dict[str, str] = {}
    layers += furnish(plan)
    # While still privileged, so that nothing but the namespace itself can refuse.
    failures["pid_namespace"] = _try_processes()
    failures["network_namespace"] = _try_connect(bait.port)
    failures["mount_namespace"] = (
        "the host's scratch folder is visible" if os.path.exists(bait.marker) else ""
    )
    failures["ipc_namespace"] = _try_segment(bait.segment)
    layers += confine(plan)
    failures["user"] = _try_root(plan.uid)
    failures["landlock"] = _try_files(bait)
    failures["seccomp"] = _try_calls()
    failures["rlimits"] = _try_fork(plan.limits.processes) or _try_large_file(plan)
    failures["scratch_quota"] = _try_fill(plan)
    return {layer.name: [layer.active, layer.detail, failures[layer.name]] for layer in layers}


def _refused(action: Callable[[], object], *codes: int) -> bool:
    """Did the action fail with one of these errors?"""
    try:
        action()
    except OSError as error:
        return error.errno in codes
    return False


def _try_processes() -> str:
    if os.getpid() != 1:
        return f"the child is process {os.getpid()}"
    others = [name for name in os.listdir("/proc") if name.isdigit() and name != "1"]
    return f"it sees {len(others)} other processes" if others else ""


def _try_connect(port: int) -> str:
    with socket.socket() as plug:
        plug.settimeout(2.0)
        refused = _refused(lambda: plug.connect(("127.0.0.1", port)), errno.ENETUNREACH, errno.EADDRNOTAVAIL)
    return "" if refused else "it reached a port of the host"


def _try_segment(segment: int) -> str:
    libc = ctypes.CDLL(None)
    libc.shmat.restype = ctypes.c_ssize_t
    return "" if libc.shmat(segment, None, 0) == -1 else "it attached shared memory of the host"


def _try_root(uid: int | None) -> str:
    if os.getresuid() != (uid, uid, uid):
        return f"it runs as {os.getresuid()}"
    return "" if _refused(lambda: os.setuid(0), errno.EPERM) else "it became root again"


def _try_files(bait: _Bait) -> str:
    if not _refused(lambda: os.open(bait.secret, os.O_RDONLY), errno.EACCES):
        return "it read a file outside"
    stray = os.path.join(bait.open_folder, "stray")
    return (
        "" if _refused(lambda: os.open(stray, os.O_CREAT | os.O_WRONLY), errno.EACCES) else "it wrote outside"
    )


def _try_calls() -> str:
    if not _refused(lambda: socket.socket(socket.AF_INET), errno.EPERM):
        return "it made a socket"
    if not _refused(lambda: syscalls.unshare(syscalls.CLONE_NEWUTS), errno.EPERM):
        return "it made a namespace"
    ptrace, trace_me = 101 if os.uname().machine == "x86_64" else 117, 0
    return "" if _refused(lambda: syscalls.syscall(ptrace, trace_me), errno.EPERM) else "ptrace worked"


def _try_fork(most: int) -> str:
    children: list[int] = []
    try:
        for _ in range(most + 1):
            child = os.fork()
            if child == 0:
                signal.pause()
                os._exit(0)
            children.append(child)
    except BlockingIOError:
        return ""
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return f"it forked {len(children)} times"


def _try_large_file(plan: Plan) -> str:
    path = os.path.join(plan.scratch, "large")
    with open(path, "wb", buffering=0) as file:
        file.write(b"x" * plan.limits.file_bytes)
        refused = _refused(lambda: file.write(b"x"), errno.EFBIG)
    os.unlink(path)
    return "" if refused else "it wrote a larger file"


def _try_fill(plan: Plan) -> str:
    chunk = b"x" * plan.limits.file_bytes
    for number in range(plan.limits.scratch_bytes // len(chunk) + 2):
        with open(os.path.join(plan.scratch, f"fill{number}"), "wb", buffering=0) as file:
            try:
                written = file.write(chunk)
            except OSError as error:
                return "" if error.errno == errno.ENOSPC else str(error)
            if written < len(chunk):
                return ""
    return "it filled more than the quota"
