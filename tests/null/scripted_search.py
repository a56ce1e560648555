"""A search whose proposer and judge follow a script: what drivers and strategies are tested on.

Candidates say in their source how fast they are; the judge of this script believes them.
"""

from __future__ import annotations

import queue
import random
import re
import threading
from pathlib import Path

from synthetic_runs import verdict

from assay.archive import Listed, SearchArchive
from assay.evaluation import Done, Task
from assay.problems import Problem, load_problem
from assay.records import About, to_plain
from assay.search import STRATEGIES, Limits, Pace, Search, Status
from assay.search.protocol import (
    FAILED_PARENT,
    IDEA,
    NOTHING,
    RIGHT_PARENT,
    TWO_PARENTS,
    Draft,
    NewIdea,
    Operator,
    Reply,
    Request,
    View,
)
from assay.search.snapshot import Command

PROBLEM = Path(__file__).parents[2] / "examples" / "layernorm" / "problem.py"
SOURCE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    speed = {}\n    status = {!r}\n"
_SPEED = re.compile(r"speed = ([\d.]+)\n    status = '(\w+)'")


def source(speed: float, status: str = "passed") -> str:
    return SOURCE.format(round(speed, 4), status)


def speed_of(text: str) -> tuple[float, str]:
    found = _SPEED.search(text)
    assert found is not None
    return float(found[1]), found[2]


class Scripted:
    """Steps up a little at a time; every fifth candidate is wrong."""

    name = "script"
    operators = (
        Operator("script", "begin", NOTHING),
        Operator("script", "think", NOTHING),
        Operator("script", "write", IDEA),
        Operator("script", "step", RIGHT_PARENT),
        Operator("script", "mend", FAILED_PARENT),
        Operator("script", "cross", TWO_PARENTS),
    )

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def propose(self, request: Request, view: View) -> Reply:
        self.asked.append(request)
        rng = random.Random(request.id)
        if request.operator.name == "think":
            ideas = [NewIdea(f"idea {request.id}.{k}", "because", "by doing", 1.2) for k in range(2)]
            return Reply(ideas=tuple(ideas), cost_usd=0.01, seconds=0.5)
        start = max((speed_of(view.by_id[n].draft.source)[0] for n in request.parents), default=0.8)
        status = "wrong" if rng.random() < 0.2 and request.operator.name != "mend" else "passed"
        reached = start * rng.uniform(0.97, 1.08)
        draft = Draft(source(reached, status), ".py", f"c{request.id}", (f"step {request.id}",), "a step")
        return Reply((draft,), cost_usd=0.02, seconds=1.0)


class Believing:
    """A judge that takes a candidate's word."""

    def __init__(self) -> None:
        self.judged: list[int] = []
        self._done: queue.Queue[Done] = queue.Queue()

    def submit(self, task: Task) -> None:
        speed, status = speed_of(task.candidate.source)
        self.judged.append(task.candidate.id)
        told = to_plain(verdict(task.candidate.problem, status, speed))
        self._done.put(Done(task, "script", {"verdict": told, "seconds": 1.0}))

    def next_done(self) -> Done | None:
        return None if self._done.empty() else self._done.get()


def open_archive(path: Path, problem: Problem) -> SearchArchive:
    archive = SearchArchive(path, create=True)
    text = problem.specification().source
    archive.add_problem(Listed(problem.name, problem.digest, problem.path, About(), text))
    return archive


def drive(
    path: Path,
    *,
    proposers: list | None = None,
    workers: object | None = None,
    strategy: str = "evolution",
    limits: Limits | None = None,
    commands: tuple[Command, ...] = (),
    watch: object = None,
    pace: Pace | None = None,
) -> tuple[str, View]:
    """A whole search; returns why it ended, and the view at its end."""
    problem = load_problem(PROBLEM)
    orders: queue.Queue[Command] = queue.Queue()
    for command in commands:
        orders.put(command)
    seen: list[Status] = []
    with open_archive(path, problem) as archive:
        search = Search(
            archive,
            problem,
            "cpu",
            proposers or [Scripted()],
            STRATEGIES[strategy](7),
            workers or Believing(),  # type: ignore[arg-type]
            limits=limits or Limits(evaluations=30),
            pace=pace or Pace(open=1, waiting=0),
            watch=watch or seen.append,  # type: ignore[arg-type]
            commands=orders,
            ended=threading.Event(),
        )
        return search.drive(lambda count: None), search.view()
