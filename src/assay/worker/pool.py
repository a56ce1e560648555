"""Children of one kind: a plan for each, and a few spare ones kept warm.

A spare is confined and has its CUDA context before the candidate is known, so a verdict does not wait for
it. Each child serves one candidate and dies. Several threads may ask at once. Not covered: several machines.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import assay
from assay.records.errors import JudgeFault
from assay.sandbox import Limits, Plan, device_paths, readable_paths, unused_uid
from assay.worker.handle import Child
from assay.worker.lending import LENT_FOLDER
from assay.worker.zygote_handle import START_TIMEOUT_S, Zygote

_PACKAGE = Path(assay.__file__).resolve().parent
_INSPECTOR_PROCESSES = 4
"""So many times the usual number: the tool starts a thread for each processor."""


class Pool:
    """Confined children with the same limits, for a zygote's device."""

    def __init__(self, zygote: Zygote, limits: Limits) -> None:
        self._zygote = zygote
        self._limits = limits
        self._folder = tempfile.TemporaryDirectory(prefix="assay-")
        os.chmod(self._folder.name, 0o711)
        self._readable = (*readable_paths(), str(LENT_FOLDER))
        self._devices = device_paths()
        self._spares: list[Child] = []
        self._lock = threading.Lock()
        """Held while the list of spares changes, and never while a child starts."""
        self._starting: threading.Thread | None = None
        self._closed = False

    def take(self) -> Child:
        """A fresh child, confined and ready."""
        with self._lock:
            spare = self._spares.pop(0) if self._spares else None
        if spare is not None and spare.responds(START_TIMEOUT_S):
            return spare
        return self._ready(self._zygote.fork(self._zygote.device, self._plan()))

    def take_compiler(self) -> Child:
        """A fresh child that never opens the GPU: it only compiles."""
        return self._ready(self._zygote.fork("cpu", self._plan()))

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
        return self._ready(self._zygote.fork("cpu", plan, sealed=False))

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
                child = self._zygote.fork(self._zygote.device, self._plan())
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
        """End the spares; the zygote is its owner's to close."""
        self._closed = True
        if self._starting is not None:
            self._starting.join()
        for spare in self._spares:
            spare.close()
        self._spares.clear()
        self._folder.cleanup()

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
