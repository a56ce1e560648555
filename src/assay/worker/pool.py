"""Where children come from: one zygote, and a few spare children kept warm.

A spare is confined and has its CUDA context before the candidate is known, so a verdict does not wait for
it. Each child serves one candidate and dies. Several threads may ask at once. Not covered: several machines.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import assay
from assay.records.codec import to_plain
from assay.records.errors import JudgeFault
from assay.sandbox import Limits, Plan, device_paths, readable_paths, unused_uid
from assay.worker import protocol
from assay.worker.handle import Child, Ends
from assay.worker.lending import LENT_FOLDER

START_TIMEOUT_S = 120.0
_KEPT_VARIABLES = (
    "PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY", "TZ",
)  # fmt: skip
_KEEPING_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
"""glibc gives large pieces of memory back as soon as they are free, or not, by where they happen to lie: one
call took twice as long in one process as in another."""
_PACKAGE = Path(assay.__file__).resolve().parent
_PACKAGE_ROOT = str(_PACKAGE.parent)
_INSPECTOR_PROCESSES = 4
"""So many times the usual number: the tool starts a thread for each processor."""
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from assay.worker.zygote import main; main(int(sys.argv[2]), sys.argv[3:])"
)


class Pool:
    """Forks confined children for one device."""

    def __init__(self, device: str, limits: Limits, preloaded: tuple[str, ...] = ()) -> None:
        """`preloaded` names further modules that every child finds imported."""
        self._device = device
        self._limits = limits
        self._preloaded = preloaded
        self._folder = tempfile.TemporaryDirectory(prefix="assay-")
        os.chmod(self._folder.name, 0o711)
        self._readable = (*readable_paths(), str(LENT_FOLDER))
        self._devices = device_paths()
        self._zygote: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._spares: list[Child] = []
        self._lock = threading.Lock()
        """Held while the list of spares changes, and never while a child starts."""
        self._asking = threading.Lock()
        self._starting: threading.Thread | None = None
        self._closed = False

    def take(self) -> Child:
        """A fresh child, confined and ready."""
        with self._lock:
            spare = self._spares.pop(0) if self._spares else None
        if spare is not None and spare.responds(START_TIMEOUT_S):
            return spare
        return self._ready(self._fork(self._device))

    def take_compiler(self) -> Child:
        """A fresh child that never opens the GPU: it only compiles."""
        return self._ready(self._fork("cpu"))

    def take_inspector(self, further: tuple[str, ...] = ()) -> Child:
        """A fresh child that starts programs which open the GPU themselves; see inspection.py.

        Its system calls are not filtered, since CUDA does not start under the filter; it may read this
        package, which its program imports, and its processes may speak TCP to each other alone.

        Args:
            further: what else it may read.
        """
        plan = self._plan()
        limits = replace(
            plan.limits, address_space_bytes=None, processes=plan.limits.processes * _INSPECTOR_PROCESSES
        )
        readable = (*plan.readable, str(_PACKAGE), *further)
        plan = replace(plan, readable=readable, limits=limits, loopback=True)
        return self._ready(self._fork("cpu", plan, sealed=False))

    def warm(self, count: int = 1) -> None:
        """Start the next children now, in the background, so that the next `take` does not wait."""
        if self._starting is not None and self._starting.is_alive():
            return
        self._starting = threading.Thread(target=self._start_spares, args=(count,), daemon=True)
        self._starting.start()

    @property
    def spares(self) -> int:
        return len(self._spares)

    def _start_spares(self, count: int) -> None:
        while len(self._spares) < count and not self._closed:
            try:
                child = self._fork(self._device)
            except JudgeFault:
                return  # `take` tries again, and says so
            with self._lock:
                self._spares.append(child)

    def settle(self) -> None:
        """Wait until no spare is still starting: its start would disturb what is timed."""
        if self._starting is not None:
            self._starting.join()
        self._spares = [spare for spare in self._spares if spare.responds(START_TIMEOUT_S)]

    def _ready(self, child: Child) -> Child:
        if not child.responds(START_TIMEOUT_S):
            raise JudgeFault(f"the confined child does not start: {child.output_tail()}")
        return child

    def close(self) -> None:
        self._closed = True
        if self._starting is not None:
            self._starting.join()
        for spare in self._spares:
            spare.close()
        self._spares.clear()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._zygote is not None:
            try:
                self._zygote.wait(10)
            except subprocess.TimeoutExpired:
                self._zygote.kill()
                self._zygote.wait()
            self._zygote = None
        self._folder.cleanup()

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        # Tools installed beside this interpreter, such as ninja, are there for candidates that compile.
        kept["PATH"] = f"{Path(sys.executable).parent}:{kept.get('PATH', '/usr/bin:/bin')}"
        if self._device == "cpu":
            kept["TRITON_INTERPRET"] = "1"
            # Threads that spin while they wait would take the processors from whoever's turn it is.
            kept.setdefault("OMP_WAIT_POLICY", "PASSIVE")
            kept |= _KEEPING_MEMORY
        # Asking NVML instead of the runtime keeps CUDA untouched in the zygote.
        return kept | {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        command = [sys.executable, "-I", "-B", "-c", _START, _PACKAGE_ROOT, str(theirs.fileno())]
        command += self._preloaded
        self._zygote = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # Ctrl-C is the judge's to answer
        )
        theirs.close()
        ours.settimeout(START_TIMEOUT_S)
        try:
            protocol.receive_trusted(ours)
        except (protocol.Closed, TimeoutError) as error:
            raise JudgeFault("the zygote did not start") from error
        return ours

    def _fork(self, device: str, plan: Plan | None = None, *, sealed: bool = True) -> Child:
        with self._asking:
            if self._socket is None or self._zygote is None or self._zygote.poll() is not None:
                self._socket = self._start()
            config = {"device": device, "hidden_paths": [_PACKAGE_ROOT], "sealed": sealed}
            return self._request(self._socket, plan or self._plan(), config)

    def _plan(self) -> Plan:
        scratch = os.path.join(self._folder.name, secrets.token_hex(8))
        os.mkdir(scratch, 0o700)
        plan = Plan(
            scratch=scratch,
            readable=self._readable,
            devices=self._devices,
            uid=unused_uid(),
            limits=self._limits,
        )
        if plan.uid is not None:
            os.chown(scratch, plan.uid, plan.uid)
        return plan

    def _request(self, zygote: socket.socket, plan: Plan, config: dict[str, Any]) -> Child:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        output_read, output_write = os.pipe()
        status_read, status_write = os.pipe()
        head = {"op": "fork", "plan": to_plain(plan), "config": config}
        try:
            protocol.send(zygote, head, fds=(theirs.fileno(), output_write, status_write))
            pids = protocol.receive_trusted(zygote).head
        except (protocol.Closed, TimeoutError) as error:
            raise JudgeFault("the zygote died") from error
        finally:
            theirs.close()
            os.close(output_write)
            os.close(status_write)
        if not pids["inner"]:
            raise JudgeFault("the zygote could not fork a child")
        return Child(pids["inner"], plan, Ends(ours, output_read, status_read))
