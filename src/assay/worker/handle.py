"""The judge's end of a child: ask, wait with a limit, watch its memory, know how it died, kill it for real.

Every failure a child can bring about leaves here as a CandidateFailure with the verdict it becomes. Not
covered: what the answers mean.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import shutil
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from assay.records.codec import from_plain
from assay.records.errors import CandidateFailure, JudgeFault
from assay.records.layers import Layer
from assay.sandbox import (
    Plan,
    companions,
    cpu_s,
    kill_all,
    kill_namespace,
    namespace_bytes,
    proportional_bytes,
    resident_bytes,
    stand_still,
)
from assay.worker import protocol
from assay.worker.messages import printable

TICK_S = 0.05
WATCH_EVERY_S, WATCH_WAITING_EVERY_S = 1.0, 0.25
"""Looking goes through all processes of the machine; who does not answer is looked at more often."""
OUTPUT_TAIL_BYTES = 16 << 10
TAKEN_BACK_S = 10.0


@dataclass(frozen=True, slots=True)
class Ends:
    """The judge's ends of one child's pipes."""

    control: socket.socket
    output_fd: int
    status_fd: int


@dataclass(frozen=True, slots=True)
class Nudge:
    """What to do for a child that does not answer by itself."""

    after_s: float
    what: Callable[[], None]


class Child:
    """One confined process, from fork to grave."""

    def __init__(self, pid: int, plan: Plan, ends: Ends) -> None:
        self._pid = pid
        self._plan = plan
        self._control = ends.control
        self._output_fd = ends.output_fd
        self._status_fd = ends.status_fd
        self._reader = protocol.Reader(ends.control)
        self._tail = bytearray()
        self._dead = False
        self.is_frozen = False
        self._frozen_at = 0.0, 0.0
        self.freezes = 0
        self.frozen_s = 0.0
        """How long it was made to stand still."""
        self.ran_frozen_s = 0.0
        """How long it ran all the same: whatever sends SIGCONT wakes it."""
        self._watched_at = 0.0
        self.extra_memory_bytes = 0
        """Shared memory the judge itself put into the child's address space."""
        self.layers: tuple[Layer, ...] = ()
        self.deadline = math.inf
        """When (by time.monotonic) the whole run has had its time, however short the single calls are."""

    @property
    def alive(self) -> bool:
        return not self._dead

    def responds(self, timeout_s: float) -> bool:
        """Wait until the child is confined and answers. No candidate code has run yet: False is our fault."""
        try:
            if not self.layers:
                reply = self._wait("start", timeout_s)
                self.layers = tuple(from_plain(Layer, plain, "layer") for plain in reply.head["layers"])
            self.ask("release", timeout_s=timeout_s)
        except CandidateFailure as failure:
            self._tail += f"\n{failure.message}".encode()
            return False
        return True

    def ask(
        self,
        op: str,
        head: dict[str, Any] | None = None,
        *,
        timeout_s: float,
        payload: bytes = b"",
        fds: tuple[int, ...] = (),
        watch: bool = True,
        nudge: Nudge | None = None,
    ) -> protocol.Message:
        """One request and its answer; a failure the child reports or suffers is raised.

        Without `watch` its memory is not looked at afterwards: looking takes longer than many an answer that
        is timed, and is then up to the caller. Where no answer comes for some time, `nudge` is done once.
        """
        if self._dead:
            raise JudgeFault(f"asked a dead child to {op}")
        left_s = self.deadline - time.monotonic()
        if left_s <= 0:
            raise self._too_slow(op, 0.0)
        timeout_s = min(timeout_s, left_s)
        self.thaw()
        self._control.settimeout(timeout_s)
        try:
            protocol.send(self._control, {"op": op, **(head or {})}, payload, fds)
        except protocol.Closed:
            raise self._death(op) from None
        except TimeoutError:
            raise self._too_slow(op, timeout_s) from None
        reply = self._wait(op, timeout_s, nudge)
        if watch:
            self.watch()
        if "failure" in reply.head:
            raise _reported(reply.head["failure"])
        if reply.head.get("ok") is not True:
            raise self._broken_protocol()
        return reply

    def _wait(self, op: str, timeout_s: float, nudge: Nudge | None = None) -> protocol.Message:
        deadline = time.monotonic() + timeout_s
        nudge_at = time.monotonic() + nudge.after_s if nudge is not None else math.inf
        while True:
            try:
                message = self._reader.next()
            except protocol.ProtocolError:
                raise self._broken_protocol() from None
            if message is not None:
                return message
            ready = _readable(TICK_S, self._control.fileno(), self._output_fd, self._status_fd)
            if self._output_fd in ready:
                self._drain_output()
            if self._control.fileno() in ready:
                if not self._reader.feed():
                    raise self._death(op)
            elif self._status_fd in ready:
                # Dead, though a process it left behind may still hold the channel open.
                raise self._death(op)
            if time.monotonic() > deadline:
                raise self._too_slow(op, timeout_s)
            if nudge is not None and time.monotonic() > nudge_at:
                nudge_at = math.inf
                nudge.what()
            if not ready:
                self.watch(WATCH_WAITING_EVERY_S)

    def watch(self, every_s: float = WATCH_EVERY_S) -> None:
        """Look at what it uses, if it is time to."""
        now = time.monotonic()
        if now - self._watched_at > every_s:
            self._watched_at = now
            self._watch()

    def _watch(self) -> None:
        """Kill a run that takes more memory, or more disk where no quota holds it, than it may."""
        limits = self._plan.limits
        allowed = limits.memory_bytes + self.extra_memory_bytes
        alone = self._has_namespace
        used = namespace_bytes(self._pid) if alone else resident_bytes(self._pid, self._plan.uid)
        if used > allowed:
            used = proportional_bytes(self._pid, self._plan.uid)
        if used > allowed:
            self.kill()
            raise CandidateFailure(
                "crashed",
                "host_memory",
                f"took {used >> 20} MiB of host memory; the limit is {limits.memory_bytes >> 20} MiB",
            )
        quota = any(layer.name == "scratch_quota" and layer.active for layer in self.layers)
        if self.layers and not quota and _folder_bytes(self._plan.scratch) > limits.scratch_bytes:
            self.kill()
            raise CandidateFailure(
                "crashed", "disk", f"wrote more than {limits.scratch_bytes >> 20} MiB of files"
            )

    def _drain_output(self) -> None:
        chunk = os.read(self._output_fd, 1 << 16)
        self._tail += chunk
        del self._tail[:-OUTPUT_TAIL_BYTES]

    def output_tail(self) -> str:
        while _readable(0, self._output_fd):
            before = len(self._tail)
            self._drain_output()
            if len(self._tail) == before:
                break
        return printable(self._tail.decode(errors="replace"))

    def _death(self, op: str) -> CandidateFailure:
        """The stream ended: learn how the process died."""
        status = self._exit_status()
        self.kill()
        if status is None:
            return CandidateFailure(
                "crashed", "closed_channel", f"closed its channel to the judge during {op}"
            )
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            name = {int(s): s.name for s in signal.Signals}.get(number, f"signal {number}")
            code = "killed" if name == "SIGKILL" else "signal"
            hint = " (out of memory?)" if name == "SIGKILL" else ""
            return CandidateFailure("crashed", code, f"died of {name} during {op}{hint}")
        code = os.WEXITSTATUS(status)
        return CandidateFailure(
            "crashed", "exited", f"exited with code {code} during {op}, without answering"
        )

    def _exit_status(self) -> int | None:
        if not _readable(2.0, self._status_fd):
            return None
        text = os.read(self._status_fd, 32)
        return int(text) if text else None

    def _too_slow(self, op: str, limit_s: float) -> CandidateFailure:
        self.kill()
        spent = time.monotonic() >= self.deadline
        text = "the whole run took too long" if spent else f"no answer to {op} within {limit_s:g} s"
        return CandidateFailure("timed_out", op, text)

    def _broken_protocol(self) -> CandidateFailure:
        self.kill()
        return CandidateFailure(
            "rejected", "forged_message", "sent the judge something other than its answer"
        )

    def freeze(self) -> None:
        """Its threads stand still until it is asked; what it has already queued on a device does not."""
        if self._dead:
            return
        stand_still(self._pid)
        if not self.is_frozen:
            self.is_frozen = True
            self.freezes += 1
            self._frozen_at = time.monotonic(), cpu_s(self._pid)

    def thaw(self) -> None:
        if self.is_frozen:
            wall, cpu = self._frozen_at
            self.frozen_s += time.monotonic() - wall
            self.ran_frozen_s += cpu_s(self._pid) - cpu
            self._signal(signal.SIGCONT)
            self.is_frozen = False

    def stop_company(self) -> None:
        """Processes it has started run no more."""
        for pid in companions(self._pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def company(self) -> int:
        """How many processes that it has started can run."""
        return len(companions(self._pid))

    def _signal(self, number: signal.Signals) -> None:
        if not self._dead:
            with contextlib.suppress(ProcessLookupError):  # its next answer will tell
                os.kill(self._pid, number)

    def end(self) -> None:
        """From another thread than the one that asks it, which learns of its death and sees to the rest."""
        self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """End the process and everything it started, then take back its folder."""
        if self._dead:
            return
        self._dead = True
        self.output_tail()
        if self._has_namespace:
            kill_namespace(self._pid)
        else:
            kill_all(self._pid, self._plan.uid)
        self._control.close()
        shutil.rmtree(self._plan.scratch, ignore_errors=True)

    @property
    def _has_namespace(self) -> bool:
        """Whether it is the first process of a pid namespace."""
        return any(layer.name == "pid_namespace" and layer.active for layer in self.layers)

    def close(self, *, wait: bool = False) -> None:
        """Kill it and let go of it.

        Args:
            wait: until the system has taken back what it held on a device, which may take a while.
        """
        self.kill()
        if self._output_fd < 0:
            return
        if wait:
            _readable(TAKEN_BACK_S, self._status_fd)
        os.close(self._status_fd)
        os.close(self._output_fd)
        self._output_fd = -1


def _readable(timeout_s: float, *descriptors: int) -> set[int]:
    """Those that have something to read or have ended; of any number, where select() knows 1024 alone."""
    waiting = select.poll()
    for descriptor in descriptors:
        waiting.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in waiting.poll(timeout_s * 1000)}


def _reported(failure: Any) -> CandidateFailure:
    """A failure as the child tells it: text is clipped and statuses are limited to what a child may claim."""
    if not isinstance(failure, dict):
        failure = {}
    status = failure.get("status")
    if status not in ("crashed", "build_failed", "wrong"):
        status = "crashed"
    texts = [printable(str(failure.get(key, ""))[:4000]) for key in ("code", "message", "detail")]
    return CandidateFailure(status, *texts)


def _folder_bytes(folder: str) -> int:
    total = 0
    for root, _dirs, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(root, name)).st_blocks * 512
            except FileNotFoundError:
                continue  # removed while we looked
    return total
