"""The daemon: accepts clients of its own user and judges for them, one candidate at a time.

The main thread does the jobs in line and nothing else; one thread accepts; each client has a thread that
reads its request, has its candidate compiled and sends what came of it. What Assay raises on purpose goes to
the client it concerns. Anything else, in whichever thread, ends the daemon loudly: a judge in a state nobody
foresaw may give wrong verdicts, and its clients can judge in their own processes.

Not covered: starting in the background (a shell or a service supervisor does), and clients elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import assay
from assay.build import needs_build
from assay.candidates import Candidate
from assay.daemon import places, protocol
from assay.daemon.bench import Bench, read_policy, read_source
from assay.daemon.door import Door
from assay.daemon.line import Job, Line, Place
from assay.daemon.protocol import CheckRequest, Closed, Garbled, Lines, Status
from assay.judge import Policy, resolve_device
from assay.problems import Problem
from assay.records import AssayError, JudgeFault, UserError, Verdict, from_plain, to_plain

T = TypeVar("T")
MAX_CLIENTS = 128
"""Each takes a thread and two descriptors, of which there are usually 1024."""
PATIENCE_S = 30.0
"""How long a client may take to send a line, or to take one."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a daemon runs."""

    device: str | None = None
    socket_path: Path | None = None
    idle_exit_s: float | None = None


def serve(settings: Settings, ready: Callable[[str, Path], None]) -> None:
    """Judge for clients until told to stop; `ready` hears the device and the socket once clients may come.

    Returns after SIGTERM, SIGINT, a client's stop, or the idle time. The socket is removed and all children
    are gone then, and also when it raises. To be called in the main thread.
    """
    device = resolve_device(settings.device)
    path = settings.socket_path or places.default_socket(str(device))
    if path is None:
        raise UserError(f"{device} has no usual socket: name one with --socket")
    if settings.socket_path is None:
        places.make_private_folder(path.parent)
    reins = Reins()
    with contextlib.ExitStack() as stack:
        door = Door(path)
        stack.callback(door.release)
        stack.callback(door.close)
        with reins.held():
            bench = Bench(device)
            stack.callback(bench.close)
            stack.callback(door.close)  # before the judges end, so that nobody waits at a closed shop
            server = Server(bench, reins, settings.idle_exit_s)
            door.listener.listen(MAX_CLIENTS)
            threading.Thread(target=server.accept, args=(door.listener,), daemon=True).start()
            ready(str(device), path)
            server.work()


class Reins:
    """How the main thread is stopped: by signals, and by failures of other threads."""

    def __init__(self) -> None:
        self.stopping = False
        self._failure: BaseException | None = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Being stopped ends the block quietly, a failed thread ends it with a JudgeFault."""
        # None of this is put back: what follows the block is the process's end.
        threading.excepthook = self._on_thread_failure
        signal.signal(signal.SIGTERM, self._on_signal)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # a background job is not to hear Ctrl-C
            signal.signal(signal.SIGINT, self._on_signal)
        try:
            yield
        except KeyboardInterrupt:
            if not self.stopping:
                raise
        finally:
            # What follows takes the children down: a second signal must not cut it short.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            self.stopping = True
        if self._failure is not None:
            raise JudgeFault(f"a client's thread failed: {self._failure!r}") from self._failure

    def pull(self) -> None:
        """Stop the main thread, from another one: a signal to it alone also ends what it waits for."""
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def _on_signal(self, _number: int, _frame: object) -> None:
        # Kept as well as raised: an exception that comes up inside a destructor is lost.
        self.stopping = True
        raise KeyboardInterrupt

    def _on_thread_failure(self, failure: threading.ExceptHookArgs) -> None:
        if self.stopping:
            return  # the ground is being taken away under threads that still compile
        self._failure = failure.exc_value or failure.exc_type()
        sys.excepthook(failure.exc_type, self._failure, failure.exc_traceback)
        self.pull()


class Server:
    """The line, the bench, and the threads that talk to clients."""

    def __init__(self, bench: Bench, reins: Reins, idle_exit_s: float | None) -> None:
        self._bench = bench
        self._reins = reins
        self._idle_exit_s = idle_exit_s
        self._source = places.source_stamp()
        self._line = Line()
        self._lock = threading.Lock()
        self._clients = 0
        self._verdicts = 0
        self._started_at = self._used_at = time.monotonic()

    # ---- the main thread

    def work(self) -> None:
        """Do jobs until stopped or idle for too long."""
        while not self._reins.stopping:
            job = self._line.take(self._idle_exit_s)
            if job is None:
                if self._is_idle():
                    return
                continue
            job.run()
            self._line.finish(job)
            self._bench.sweep()
            if job.error is not None:
                self._bench.check_device()

    def _is_idle(self) -> bool:
        with self._lock:
            idle_s = time.monotonic() - self._used_at
            return not self._clients and self._idle_exit_s is not None and idle_s >= self._idle_exit_s

    def _evaluate(self, policy: Policy, problem: Problem, candidate: Candidate) -> Verdict:
        verdict = self._bench.evaluate(policy, problem, candidate)
        self._verdicts += 1
        return verdict

    # ---- other threads

    def accept(self, listener: socket.socket) -> None:
        """Give every client a thread."""
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                if self._reins.stopping:
                    return
                raise
            threading.Thread(target=self._attend, args=(client,), daemon=True).start()

    def _attend(self, client: socket.socket) -> None:
        with client, self._counted() as clients:
            client.settimeout(PATIENCE_S)
            try:
                if objection := places.objection_to_client(client):
                    raise UserError(objection)
                if clients > MAX_CLIENTS:
                    raise UserError(f"{MAX_CLIENTS} clients are here already: try again later")
                lines = Lines(client, protocol.MAX_REQUEST_BYTES)
                while (request := lines.next()) is not None:
                    self._answer(client, request)
            except Garbled as error:
                _say(client, protocol.error_message(UserError(f"{error}; send one request per line")))
            except UserError as error:
                _say(client, protocol.error_message(error))
            except Closed:
                return  # nobody is there to be told

    @contextlib.contextmanager
    def _counted(self) -> Iterator[int]:
        with self._lock:
            self._clients += 1
            clients = self._clients
        try:
            yield clients
        finally:
            with self._lock:
                self._clients -= 1
                self._used_at = time.monotonic()

    def _answer(self, client: socket.socket, request: dict[str, Any]) -> None:
        op = request.pop("op", None)
        if op == "check":
            try:
                verdict = self._check(client, from_plain(CheckRequest, request, "request"))
            except AssayError as error:
                protocol.send(client, protocol.error_message(error))
            else:
                protocol.send(client, {"verdict": to_plain(verdict)})
        elif op == "status":
            protocol.send(client, {"status": to_plain(self._status())})
        elif op == "stop":
            protocol.send(client, {"stopping": True})
            self._reins.pull()
        else:
            raise UserError(f"no such request: {op!r}; there are check, status and stop")

    def _status(self) -> Status:
        judges, problems = self._bench.counts()
        return Status(
            assay=assay.__version__,
            source=self._source,
            pid=os.getpid(),
            device=str(self._bench.device),
            visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
            uptime_s=round(time.monotonic() - self._started_at, 1),
            verdicts=self._verdicts,
            queue=len(self._line),
            problems_kept=problems,
            judges=judges,
        )

    def _check(self, client: socket.socket, request: CheckRequest) -> Verdict:
        if request.assay != assay.__version__:
            raise UserError(f"the daemon is assay {assay.__version__}, you are {request.assay}: restart it")
        for path in (request.problem, request.candidate):
            if not os.path.isabs(path):
                raise UserError(f"{path}: the daemon takes absolute paths alone")
        policy = read_policy(request.policy)
        candidate = read_source(request.candidate)
        problem = self._bench.known_problem(request.problem, policy)
        if problem is None:
            opening = Job(lambda: self._bench.open_problem(request.problem, policy))
            problem = self._wait(client, opening, "reading the problem", opening=True)
        if needs_build(candidate) and not _say(client, {"progress": "compiling"}):
            raise Closed("hung up before the compiler")
        self._bench.build_ahead(policy, problem, candidate)
        opened = problem
        return self._wait(client, Job(lambda: self._evaluate(policy, opened, candidate)), "judging")

    def _wait(self, client: socket.socket, job: Job[T], doing: str, *, opening: bool = False) -> T:
        """Stand in line for the client. One that hangs up loses its place; a job that runs is finished."""
        said = ""
        present = True
        self._line.join(job, opening=opening)
        try:
            while (place := self._line.place_of(job)).state != "done":
                if not present and self._line.leave(job):
                    raise Closed("hung up in line")
                words = _words(place, doing)
                if present and words != said:
                    said, present = words, _say(client, {"progress": words})
                else:
                    present = job.sleep(client if present else None) and present
        finally:
            job.close()
        return job.result()


def _words(place: Place, doing: str) -> str:
    return doing if place.state == "running" else f"queued, {place.ahead} ahead"


def _say(client: socket.socket, message: dict[str, Any]) -> bool:
    """Send where it does not matter if the client is gone; False if it is."""
    try:
        protocol.send(client, message)
    except Closed:
        return False
    return True
