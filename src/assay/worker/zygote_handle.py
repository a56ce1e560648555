"""The judge's end of the zygote (zygote.py): starts it when first asked, and again where it has died.

Several pools fork from one, and several threads may ask at once.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import assay
from assay.records.codec import to_plain
from assay.records.errors import JudgeFault
from assay.sandbox import Plan
from assay.worker import protocol
from assay.worker.handle import Child, Ends

START_TIMEOUT_S = 120.0
_KEPT_VARIABLES = (
    "PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY", "TZ",
)  # fmt: skip
_KEEPING_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
"""glibc gives large pieces of memory back as soon as they are free, or not, by where they happen to lie: one
call took twice as long in one process as in another."""
_PACKAGE_ROOT = str(Path(assay.__file__).resolve().parent.parent)
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from assay.worker.zygote import main; main(int(sys.argv[2]), sys.argv[3:])"
)


class Zygote:
    """Forks confined children for one device."""

    def __init__(self, device: str, preloaded: tuple[str, ...] = ()) -> None:
        """`preloaded` names further modules that every child finds imported."""
        self.device = device
        self._preloaded = preloaded
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._asking = threading.Lock()

    def fork(self, device: str, plan: Plan, *, sealed: bool = True) -> Child:
        """A child that is about to become confined."""
        with self._asking:
            if self._socket is None or self._process is None or self._process.poll() is not None:
                self._socket = self._start()
            config = {"device": device, "hidden_paths": [_PACKAGE_ROOT], "sealed": sealed}
            return _forked(self._socket, plan, config)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        # Tools installed beside this interpreter, such as ninja, are there for candidates that compile.
        kept["PATH"] = f"{Path(sys.executable).parent}:{kept.get('PATH', '/usr/bin:/bin')}"
        if self.device == "cpu":
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
        self._process = subprocess.Popen(
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


def _forked(zygote: socket.socket, plan: Plan, config: dict[str, Any]) -> Child:
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
