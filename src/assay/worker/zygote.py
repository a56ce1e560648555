"""The zygote: torch and triton imported, CUDA untouched, forks one confined child per request.

Forking a warm interpreter costs a fraction of importing torch again. The zygote runs no candidate code and
holds nothing worth stealing: no seeds, no expected values, no reference. For each request it forks P1,
which enters the namespaces and forks P2; P2 becomes the child (see child.py), P1 waits and reports how P2
ended. When the judge goes away, the zygote's socket closes and everything below it is killed.

Not covered: what the child does; limits over time (the judge's watchdog).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import linecache
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from assay.records.codec import from_plain, to_plain
from assay.records.layers import Layer
from assay.sandbox import Plan, isolate, kill_all
from assay.worker import interpreted, protocol

# Imported before the first fork, so that no child pays for it.
PRELOADED = (
    "numpy", "torch", "torch.utils.cpp_extension", "triton", "triton.language",
    "triton.experimental.gluon", "triton.experimental.gluon.language",
    "assay.worker.child",
)  # fmt: skip
OPTIONAL = (
    "numpy",
    "triton",
    "triton.language",
    "triton.experimental.gluon",
    "triton.experimental.gluon.language",
)


def main(control_fd: int, further: Sequence[str] = ()) -> None:
    """Serve fork requests until the judge closes the socket; `further` modules are imported as well."""
    judge = socket.socket(fileno=control_fd)
    gc.disable()
    for name in (*PRELOADED, *further):
        try:
            importlib.import_module(name)
        except ImportError:
            if name not in OPTIONAL:
                raise
    _warm_triton()
    linecache.clearcache()  # imports may have left source text behind
    # What is imported stays: children that searched it for garbage would copy all of it.
    gc.freeze()
    gc.enable()
    # P1 processes are reaped by the kernel; each P1 restores the default to wait for its P2.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    protocol.send(judge, {"ready": True, "pid": os.getpid()})
    living: dict[int, int | None] = {}
    while True:
        try:
            message = protocol.receive_trusted(judge)
        except protocol.Closed:
            break
        plan = from_plain(Plan, message.head["plan"], "plan")
        pids = _fork_child(judge, plan, message)
        living[pids["inner"]] = plan.uid
        living = {pid: uid for pid, uid in living.items() if os.path.exists(f"/proc/{pid}")}
        protocol.send(judge, pids)
    for pid, uid in living.items():
        kill_all(pid, uid)
    os._exit(0)  # there is nothing to tidy up, and taking torch apart lasts half a second


def _warm_triton() -> None:
    """What Triton does once per process and is the same for everyone.

    Its driver's helper library is built and loaded, its own files are hashed, its compiler has run: a second,
    and CUDA stays untouched.
    """
    if "triton" not in sys.modules:
        return
    if os.environ.get("TRITON_INTERPRET") == "1":
        interpreted.mend()
        return
    if not sys.modules["torch"].cuda.is_available():
        return
    cache = importlib.import_module("triton.runtime.cache")
    if hasattr(cache, "triton_key"):
        cache.triton_key()
    driver = importlib.import_module("triton.runtime").driver.active
    # Building the helper library needs a compiler; without one candidates are told themselves.
    with contextlib.suppress(RuntimeError, OSError, subprocess.CalledProcessError):
        _ = driver.utils
    # Other versions may be called in another way: then the first compilation takes longer, no more.
    with contextlib.suppress(ImportError, TypeError, OSError, subprocess.CalledProcessError):
        importlib.import_module("assay.worker.first_compile").compile_once()


def _fork_child(judge: socket.socket, plan: Plan, message: protocol.Message) -> dict[str, int]:
    """Fork P1 and learn from it the pid of P2, which alone runs candidate code."""
    control_fd, output_fd, status_fd = message.fds
    reader, writer = os.pipe()
    outer = os.fork()
    if outer == 0:
        judge.close()
        os.close(reader)
        _be_outer(plan, message.head["config"], control_fd, output_fd, status_fd, writer)
    for fd in (control_fd, output_fd, status_fd, writer):
        os.close(fd)
    inner = b""
    while chunk := os.read(reader, 64):
        inner += chunk
    os.close(reader)
    return {"outer": outer, "inner": int(inner or b"0")}


def _be_outer(
    plan: Plan, config: dict[str, Any], control_fd: int, output_fd: int, status_fd: int, pid_fd: int
) -> None:
    """P1: isolate, fork P2, report its pid, then wait and report how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    layers: list[Layer] = isolate(plan)
    inner = os.fork()
    if inner == 0:
        os.close(pid_fd)
        os.close(status_fd)
        child = importlib.import_module("assay.worker.child")
        child.main(plan, to_plain(config), layers, control_fd, output_fd)
        os._exit(70)
    os.write(pid_fd, str(inner).encode())
    for fd in (pid_fd, control_fd, output_fd):
        os.close(fd)
    _, status = os.waitpid(inner, 0)
    with contextlib.suppress(BrokenPipeError):  # the judge may have stopped listening to this child
        os.write(status_fd, str(status).encode())
    os._exit(0)
