"""Workers on this machine: one process for each device, or several on a CPU where nothing is timed.

A worker that dies is replaced and its candidate tried once more: whatever killed it, another candidate must
not pay. Not covered: other machines (ray_crew.py).
"""

from __future__ import annotations

import queue
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from assay.evaluation.devices import Described, describe_device
from assay.evaluation.line import Done, Line, Task
from assay.evaluation.process import WorkerProcess
from assay.llm import Answer, Settings, Spoken, complete

TRIES = 2
LOOK_EVERY_S = 0.25


class Crew:
    """Worker processes, and the tasks they are given."""

    def __init__(self, devices: Sequence[str], policy: dict[str, Any], threads: int = 0) -> None:
        """One worker for each of `devices`; on a CPU each may use so many `threads`."""
        self._devices = devices
        self._policy = policy
        self._threads = threads
        self._line = Line()
        self._done: queue.Queue[Done] = queue.Queue()
        self._processes: dict[str, WorkerProcess] = {}
        self._threads_here = ThreadPoolExecutor(len(devices))
        self._members = [
            self._threads_here.submit(self._work, f"{device}/{k}", device) for k, device in enumerate(devices)
        ]

    def submit(self, task: Task) -> None:
        self._line.put(task)

    def next_done(self) -> Done | None:
        """What has ended, if anything does within a moment; a fault of the crew's own is raised."""
        try:
            return self._done.get(timeout=LOOK_EVERY_S)
        except queue.Empty:
            for member in self._members:
                if member.done():
                    member.result()
            return None

    def describe_device(self) -> Described:
        """What judges here."""
        return describe_device(self._devices[0])

    def complete(self, settings: Settings, prompt: Spoken) -> Answer:
        """Asks a model, from this machine."""
        return complete(settings, prompt)

    def close(self) -> None:
        """No more tasks; what is under way is given up."""
        self._line.close()
        for process in list(self._processes.values()):
            process.kill()
        self._threads_here.shutdown(wait=True)

    def _work(self, name: str, device: str) -> None:
        self._processes[name] = WorkerProcess(device, self._policy, self._threads)  # it takes seconds
        try:
            while (task := self._line.take(name)) is not None:
                self._done.put(Done(task, name, self._judge(name, device, task)))
        finally:
            process = self._processes.pop(name, None)
            if process is not None:
                process.kill()  # whoever closed the crew before it was there did not
                process.end()

    def _judge(self, name: str, device: str, task: Task) -> dict[str, Any]:
        request = task.request()
        ahead = self._line.after(task)
        if ahead is not None:
            request["ahead"] = ahead.request()
        for _ in range(TRIES):
            process = self._processes.get(name)
            if process is None:
                process = self._processes[name] = WorkerProcess(device, self._policy, self._threads)
            reply = process.ask(request)
            if reply is not None:
                return reply
            self._processes.pop(name).kill()
            if self._line.closed:
                break
        return {"failure": f"the judge's process died on it, {TRIES} times"}
