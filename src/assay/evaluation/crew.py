"""Workers on this machine: one process for each device, or several on a CPU where nothing is timed.

A worker that dies is replaced and its candidate tried once more: whatever killed it, another candidate must
not pay. Not covered: other machines (ray_crew.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import IO, Any

from assay.archive import Planned
from assay.records import JudgeFault

TRIES = 2
ENDS_WITHIN_S = 30.0
LOOK_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Task:
    """A candidate to be judged."""

    candidate: Planned
    path: str
    """Of its problem."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a worker told of a task."""

    task: Task
    worker: str
    reply: dict[str, Any]


@dataclass(slots=True)
class _Bench:
    """Tasks that wait; each worker stays with the problem it has prepared as long as that has any."""

    waiting: list[Task] = field(default_factory=list)
    change: threading.Condition = field(default_factory=threading.Condition)
    closed: bool = False
    taken: dict[str, str] = field(default_factory=dict)
    """Which problem each worker is at."""

    def put(self, task: Task) -> None:
        with self.change:
            self.waiting.append(task)
            self.change.notify()

    def take(self, worker: str) -> Task | None:
        """The next task for this worker; None when there will be no more."""
        with self.change:
            self.change.wait_for(lambda: self.waiting or self.closed)
            if not self.waiting or self.closed:
                return None
            elsewhere = {path for other, path in self.taken.items() if other != worker}
            mine = self.taken.get(worker)
            index = min(
                range(len(self.waiting)),
                key=lambda k: (self.waiting[k].path != mine, self.waiting[k].path in elsewhere, k),
            )
            task = self.waiting.pop(index)
            self.taken[worker] = task.path
            return task

    def after(self, task: Task) -> Task | None:
        """What the same worker will probably be given next."""
        with self.change:
            return next((other for other in self.waiting if other.path == task.path), None)

    def close(self) -> None:
        with self.change:
            self.closed = True
            self.change.notify_all()


class Crew:
    """Worker processes, and the tasks they are given."""

    def __init__(self, devices: Sequence[str], policy: dict[str, Any], threads: int = 0) -> None:
        """One worker for each of `devices`; on a CPU each may use so many `threads`."""
        self._policy = policy
        self._threads = threads
        self._bench = _Bench()
        self._done: queue.Queue[Done] = queue.Queue()
        self._processes: dict[str, _Process] = {}
        self._threads_here = ThreadPoolExecutor(len(devices))
        self._members = [
            self._threads_here.submit(self._work, f"{device}/{k}", device) for k, device in enumerate(devices)
        ]

    def submit(self, task: Task) -> None:
        self._bench.put(task)

    def next_done(self) -> Done | None:
        """What has ended, if anything does within a moment; a fault of the crew's own is raised."""
        try:
            return self._done.get(timeout=LOOK_EVERY_S)
        except queue.Empty:
            for member in self._members:
                if member.done():
                    member.result()
            return None

    def close(self) -> None:
        """No more tasks; what is under way is given up."""
        self._bench.close()
        for process in list(self._processes.values()):
            process.kill()
        self._threads_here.shutdown(wait=True)

    def _work(self, name: str, device: str) -> None:
        try:
            while (task := self._bench.take(name)) is not None:
                self._done.put(Done(task, name, self._judge(name, device, task)))
        finally:
            process = self._processes.pop(name, None)
            if process is not None:
                process.end()

    def _judge(self, name: str, device: str, task: Task) -> dict[str, Any]:
        request = _request(task)
        ahead = self._bench.after(task)
        if ahead is not None:
            request["ahead"] = _request(ahead)
        for _ in range(TRIES):
            process = self._processes.get(name)
            if process is None:
                process = self._processes[name] = _Process(device, self._policy, self._threads)
            reply = process.ask(request)
            if reply is not None:
                return reply
            self._processes.pop(name).kill()
            if self._bench.closed:
                break
        return {"failure": f"the judge's process died on it, {TRIES} times"}


def _request(task: Task) -> dict[str, Any]:
    one = task.candidate
    return {"id": one.id, "path": task.path, "name": one.name, "suffix": one.suffix, "source": one.source}


class _Process:
    """One worker process."""

    def __init__(self, device: str, policy: dict[str, Any], threads: int) -> None:
        theirs, mine = os.pipe(), os.pipe()
        environment = dict(os.environ)
        if threads:
            environment["OMP_NUM_THREADS"] = str(threads)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "assay.evaluation.worker", str(theirs[0]), str(mine[1])],
            pass_fds=(theirs[0], mine[1]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # what problem code prints is nobody's answer
            start_new_session=True,  # Ctrl-C is the driver's to answer
            env=environment,
        )
        os.close(theirs[0])
        os.close(mine[1])
        self._requests: IO[str] = os.fdopen(theirs[1], "w", encoding="utf-8")
        self._answers: IO[str] = os.fdopen(mine[0], encoding="utf-8")
        self._send({"device": device, "policy": policy})

    def ask(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """The answer; None if the process died instead."""
        self._send(request)
        line = self._answers.readline()
        if not line.endswith("\n"):
            return None
        reply = json.loads(line)
        if reply.pop("id") != request["id"]:
            raise JudgeFault("a worker answered another question")
        return dict(reply)

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # its answer will be missing
            self._requests.write(json.dumps(message) + "\n")
            self._requests.flush()

    def kill(self) -> None:
        self._process.terminate()  # as the driver, it takes its children with it

    def end(self) -> None:
        """It ends by itself when there are no more requests."""
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        try:
            self._process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()
