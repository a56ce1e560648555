"""Workers of a Ray cluster: actors judge, tasks compile and ask models. Ray carries text alone.

A node that dies takes its actors along: their candidates go back to the line. Actors are made wherever there
is room, so that nodes may join. See docs/design/cluster.md.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from assay.build import needs_build
from assay.candidates import candidate_from_source
from assay.evaluation import ray_parts
from assay.evaluation.devices import Described
from assay.evaluation.line import Done, Line, Task
from assay.evaluation.suite import Suite
from assay.llm import Answer, Settings, Spoken
from assay.llm.answers import KEYS
from assay.problems import pack
from assay.records import UserError, from_plain, to_plain

LOOK_EVERY_S = 0.25
STAFF_EVERY_S = 2.0
TRIES = 3
"""Of one candidate: a cluster may lose a node, but not three under the same candidate by chance."""
EMPTY_FOR_S = 300.0
"""How long a cluster may have no room for anybody before the run gives up."""
CONNECTS_WITHIN_S = 10.0
SHARE = 0.5
"""Of a CPU: where there are no GPUs, judges leave the other half to compilers."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Where one actor may be: on a node, with these resources."""

    node: str
    number: int
    gpus: float
    cpus: float

    @property
    def name(self) -> str:
        return f"{self.node[:8]}/{self.number}"


def seats_of(nodes: list[dict[str, Any]], *, timed: bool) -> list[Seat]:
    """One for each GPU; where the cluster has none, one for each CPU, or for each node if it is timed."""
    alive = [node for node in nodes if node["Alive"]]
    resources = [(str(node["NodeID"]), node.get("Resources", {})) for node in alive]
    if any(has.get("GPU", 0) >= 1 for _, has in resources):
        return [Seat(node, k, 1, 0) for node, has in resources for k in range(int(has.get("GPU", 0)))]
    cpus = [(node, int(has.get("CPU", 0))) for node, has in resources]
    if timed:
        return [Seat(node, 0, 0, count) for node, count in cpus if count]
    return [Seat(node, k, 0, SHARE) for node, count in cpus for k in range(count)]


class RayCrew:
    """Actors, and the tasks they are given. Used from one thread, `complete` apart."""

    def __init__(self, address: str, policy: dict[str, Any], suite: Suite) -> None:
        self._ray = _connected(address)
        self._policy = policy
        self._timed = bool(policy.get("speed", True))
        self._parcels = {problem.path: to_plain(pack(problem)) for problem in suite.problems.values()}
        self._line = Line()
        self._members: dict[Seat, Any] = {}
        self._under_way: dict[Any, tuple[Seat, Task | None]] = {}
        """What is awaited: a task's end, or the first word of a new actor."""
        self._idle: list[Seat] = []
        self._builds: dict[int, Any] = {}
        self._tries: dict[int, int] = {}
        self._described: Described | None = None
        self._arch: str | None = None
        self._can_build = False
        self._staffed_at = -STAFF_EVERY_S
        self._seen_at = time.monotonic()
        """When somebody was last at work, or about to be."""

    def submit(self, task: Task) -> None:
        self._line.put(task)
        if self._can_build:
            self._build_ahead(task)

    def next_done(self) -> Done | None:
        """What has ended, if anything does within a moment."""
        self._staff()
        self._hand_out()
        if not self._under_way:
            time.sleep(LOOK_EVERY_S)
            return None
        ready, _ = self._ray.wait(list(self._under_way), timeout=LOOK_EVERY_S)
        return self._take(ready[0]) if ready else None

    def complete(self, settings: Settings, prompt: Spoken) -> Answer:
        """Asks a model from a task of the cluster; may be called from threads."""
        key = os.environ.get(KEYS[settings.provider], "")
        asked = json.dumps({"settings": to_plain(settings), "prompt": to_plain(prompt), "key": key})
        told = json.loads(self._ray.get(self._task(ray_parts.complete_remotely).remote(asked)))
        if "error" in told:
            raise UserError(told["error"])
        return from_plain(Answer, told, "answer")

    def describe_device(self) -> Described:
        """What judges here, as one of the nodes says; asked once, before anybody judges."""
        if self._described is None:
            self._described = self._ask_for_device()
        return self._described

    def _ask_for_device(self) -> Described:
        gpus = 1 if self._ray.cluster_resources().get("GPU", 0) >= 1 else 0
        task = self._ray.remote(ray_parts.describe_remotely).options(num_gpus=gpus, num_cpus=0)
        asked = task.remote("cuda:0" if gpus else "cpu")
        try:
            told = json.loads(self._ray.get(asked, timeout=EMPTY_FOR_S))
        except self._ray.exceptions.GetTimeoutError as error:
            self._ray.cancel(asked)
            raise UserError(f"none of the cluster's GPUs is free for {EMPTY_FOR_S:.0f} s") from error
        except self._ray.exceptions.RayError as error:
            why = str(error).strip().splitlines()[-1]
            raise UserError(f"no node of the cluster says what it has: {why}") from error
        if "error" in told:
            raise UserError(f"no GPU of the cluster can be used: {told['error']}")
        return from_plain(Described, told, "device")

    def close(self) -> None:
        """What is under way is given up."""
        self._line.close()
        for actor in self._members.values():
            self._ray.kill(actor)
        self._ray.shutdown()

    def _staff(self) -> None:
        """An actor on every seat that has none."""
        now = time.monotonic()
        if now - self._staffed_at < STAFF_EVERY_S:
            return
        self._staffed_at = now
        for seat in seats_of(self._ray.nodes(), timed=self._timed):
            if seat not in self._members:
                self._members[seat] = self._actor(seat)
                self._under_way[self._members[seat].hello.remote()] = (seat, None)
        if self._members:
            self._seen_at = now
        elif now - self._seen_at > EMPTY_FOR_S:
            raise UserError(
                "the cluster has no room for a judge: what is judged is kept, start it again later"
            )

    def _actor(self, seat: Seat) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        remote = self._ray.remote(ray_parts.Judging).options(
            num_gpus=seat.gpus,
            num_cpus=seat.cpus,
            max_restarts=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(seat.node, soft=False),
        )
        device = "cuda:0" if seat.gpus else "cpu"
        threads = 0 if seat.gpus or self._timed else 1
        return remote.remote(json.dumps({"device": device, "policy": self._policy, "threads": threads}))

    def _task(self, function: Any) -> Any:
        return self._ray.remote(function).options(num_cpus=SHARE)

    def _hand_out(self) -> None:
        while self._idle:
            seat = self._idle[-1]
            task = self._line.take(seat.name, patient=False)
            if task is None:
                return
            self._idle.pop()
            asked = json.dumps({**task.request(), "parcel": self._parcels[task.path]})
            reference = self._members[seat].judge.remote(asked, self._builds.pop(task.candidate.id, "null"))
            self._under_way[reference] = (seat, task)

    def _take(self, reference: Any) -> Done | None:
        seat, task = self._under_way.pop(reference)
        try:
            told = json.loads(self._ray.get(reference))
        except self._ray.exceptions.RayError as error:
            return self._lost(seat, task, error)
        self._idle.append(seat)
        if task is not None:
            return Done(task, told.pop("worker"), told)
        self._greeted(told)
        return None

    def _greeted(self, told: dict[str, Any]) -> None:
        if not self._can_build and not (self._timed and told["cuda_arch"] is None):
            self._arch, self._can_build = told["cuda_arch"], True
            for task in self._line.waiting:
                self._build_ahead(task)

    def _lost(self, seat: Seat, task: Task | None, error: Exception) -> Done | None:
        """An actor, and perhaps what it was at: another one tries again."""
        self._members.pop(seat, None)
        self._line.leave(seat.name)
        if task is None:
            return None
        number = task.candidate.id
        self._tries[number] = self._tries.get(number, 0) + 1
        if self._tries[number] < TRIES:
            self._line.put(task, first=True)
            return None
        why = f"{TRIES} workers of the cluster were lost on it: {str(error).splitlines()[0]}"
        return Done(task, seat.name, {"failure": why})

    def _build_ahead(self, task: Task) -> None:
        one = task.candidate
        try:
            needed = needs_build(candidate_from_source(one.source, one.name, one.suffix))
        except UserError:  # a text without a kernel: the worker says so
            return
        if needed:
            asked = json.dumps({**task.request(), "cuda_arch": self._arch, "policy": self._policy})
            self._builds[one.id] = self._task(ray_parts.build_remotely).remote(asked)


def _connected(address: str) -> ModuleType:
    try:
        import ray
    except ImportError as error:
        raise UserError("Ray is missing: pip install 'assay[ray]'") from error
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdigit():  # Ray itself would try for minutes
            socket.create_connection((host, int(port)), CONNECTS_WITHIN_S).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError) as error:
        why = str(error).splitlines()[0]
        raise UserError(f"{address}: no Ray cluster answers there ({why})") from error
    return ray
