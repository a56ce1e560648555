"""The proposer behind which people and coding agents stand: it asks through a folder, and waits.

What is asked carries a mark made of the problem, the operator and the parents' sources. An answer that lies
there from another search, under the same number, is no answer to it and is not taken. Not covered: several
drafts for one request; whoever has more puts them into the folder `inject`.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from assay.evaluation import describe_device
from assay.llm import Prompts
from assay.problems import Problem
from assay.records import UserError, digest
from assay.search import queue_folder
from assay.search.describing import told
from assay.search.protocol import (
    FAILED_PARENT,
    NOTHING,
    RIGHT_PARENT,
    Draft,
    Member,
    Operator,
    Reply,
    Request,
    View,
)

NAME = "queue"
ASK, IMPROVE, REPAIR = (
    Operator(NAME, "ask", NOTHING),
    Operator(NAME, "improve", RIGHT_PARENT),
    Operator(NAME, "repair", FAILED_PARENT),
)
POLL_S = 0.5
_WANTED = {
    ASK.name: "Write a kernel that computes exactly what the module below computes, as fast as you can.",
    IMPROVE.name: "The kernel below is right. Make it faster.",
    REPAIR.name: "The kernel below is not right. Repair it, and change nothing that works.",
}
_JUDGED = """\
- Right: every output is compared with a float64 oracle, on all declared cases and on hidden ones: other
  sizes, strides, scales and distributions. Inputs stay unchanged; outputs share no memory with them.
- Precision: what the module asks for. Products of float32 stay float32 unless the problem allows TF32.
- Honest: nothing is remembered from call to call, and no work is left for later.
- Fast: timed at the size of `get_inputs()` against the best of PyTorch's baselines."""


class QueueProposer:
    """Asks people and agents. Each request waits in its own thread until it has an end."""

    name = NAME
    operators = (ASK, IMPROVE, REPAIR)

    def __init__(
        self,
        folder: Path,
        *,
        described: str | None = None,
        timeout_s: float | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        """`described`: the device that judges, None for one of this machine; `timeout_s`: how long a request
        waits, None for ever; `stop`: once set, nothing waits any more."""
        self._folder = queue_folder.open_folder(folder)
        self._described = described
        self._timeout_s = timeout_s
        self._stop = stop or threading.Event()

    def propose(self, request: Request, view: View) -> Reply:
        """Write the prompt, then wait for an answer, a refusal, the time-out or the end of the search."""
        try:
            if objection := self._ask(request, view):
                return Reply(trouble=objection)
            return self._wait(request.id)
        except UserError as error:
            return Reply(trouble=str(error))

    def _ask(self, request: Request, view: View) -> str:
        """Empty once the prompt lies there; else why it does not."""
        parents = [view.by_id[number] for number in request.parents]
        mark = _mark(request, view, parents)
        if queue_folder.has_end(self._folder, request.id):
            if mark not in queue_folder.asked_before(self._folder, request.id):
                return (
                    f"{self._folder} holds an answer to another request {request.id}: "
                    "give each search a folder of its own"
                )
            return ""
        device = self._described or describe_device(view.device).words
        queue_folder.ask(self._folder, request.id, prompt_text(request, view, parents, mark, device))
        return ""

    def _wait(self, number: int) -> Reply:
        start = time.monotonic()
        while True:
            found = queue_folder.look(self._folder, number)
            if isinstance(found, Draft):
                return Reply(drafts=(found,))
            if found is not None:
                return Reply(trouble=f"request {number} was declined: {found.why}", exhausted=True)
            if self._timeout_s is not None and time.monotonic() - start >= self._timeout_s:
                return self._give_up(number, f"nobody answered request {number} in {self._timeout_s:g} s")
            if self._stop.wait(POLL_S):
                return self._give_up(number, f"stopped before request {number} was answered")

    def _give_up(self, number: int, why: str) -> Reply:
        queue_folder.withdraw(self._folder, number)
        return Reply(trouble=why)


def prompt_text(request: Request, view: View, parents: Sequence[Member], mark: str, device: str) -> str:
    """A request as a page that a person can read."""
    parts = [
        mark,
        f"# {request.id:04d}: {request.operator.name} a kernel for {view.problem.name}",
        _WANTED[request.operator.name],
        _how_to_answer(request.id, _suffixes(view)),
        f"## The device\n\n{device}",
        f"## The problem\n\n{_fenced(view.problem.specification().source, 'python')}",
        f"## What to write\n\n{_rules(view)}",
        f"## How it is judged\n\n{_JUDGED}",
        *(_about_parent(member) for member in parents),
        f"## Best so far\n\n{_best(view, parents)}",
    ]
    return "\n\n".join(parts) + "\n"


def _mark(request: Request, view: View, parents: Sequence[Member]) -> str:
    sources = [member.draft.source for member in parents]
    made_of = digest(view.problem.digest, request.operator.name, *sources)
    return f"<!-- request {request.id}, {made_of[:16]} -->"


def _suffixes(view: View) -> tuple[str, ...]:
    if view.problem.entry == "custom_kernel":
        return (".py",)
    return (".py", ".cu") if view.device.startswith("cuda") else (".py", ".cpp")


def _how_to_answer(number: int, suffixes: tuple[str, ...]) -> str:
    names = " or ".join(f"`{number:04d}-answer{suffix}`" for suffix in suffixes)
    return (
        f"Answer with the whole kernel in one file, {names}, in the folder of this page. Work on it under\n"
        "another name or elsewhere, and rename it when it is done: it is taken once it has lain unchanged\n"
        "for a second. A comment in its first line is kept as your note.\n\n"
        f"To decline, make a file `{number:04d}-skip`. When this page is called\n"
        f"`{number:04d}-withdrawn.md`, nobody waits any more; an answer is still taken in the folder\n"
        f"`{queue_folder.INJECT}`, under any name."
    )


def _rules(view: View) -> str:
    if view.problem.entry == "custom_kernel":
        return _task_rules(view.problem)
    languages = {".py": "triton", ".cu": "cuda", ".cpp": "cpp"}
    parts = []
    for suffix in _suffixes(view):
        language = languages[suffix]
        rules = Prompts.read(language).files[f"rules_{language}.md"].strip()
        parts.append(f"`{suffix}`: {rules}")
    return "\n\n".join(parts)


def _task_rules(problem: Problem) -> str:
    beside = ", ".join(sorted(problem.support_files))
    imports = f" It may import {beside}." if beside else ""
    return f"`.py`: a function `custom_kernel(data)` that returns what the reference returns.{imports}"


def _about_parent(member: Member) -> str:
    return (
        f"## Where to start: #{member.id} {member.draft.name}\n\n{_source(member)}\n\n"
        f"What the judge says of it:\n\n{_fenced(told(member), 'text')}"
    )


def _best(view: View, shown: Sequence[Member]) -> str:
    right = len(view.ranked)
    counted = f"{len(view.judged)} candidates are judged, {right} of them right."
    best = view.best
    if best is None:
        return counted
    line = f"{counted} The best is #{best.id} {best.draft.name}, {_speed(best)}."
    return line if best.id in {member.id for member in shown} else f"{line}\n\n{_source(best)}"


def _speed(member: Member) -> str:
    if member.ratio is None:
        return "right and not timed"
    ratio = member.ratio
    return f"{ratio.middle:.3f} times the speed of the best baseline ({ratio.low:.3f} to {ratio.high:.3f})"


def _source(member: Member) -> str:
    fences = {".py": "python", ".cu": "cuda", ".cpp": "cpp"}
    return _fenced(member.draft.source, fences.get(member.draft.suffix, ""))


def _fenced(text: str, tag: str) -> str:
    """A block that no line of the text ends early."""
    longest = max((len(run) for run in re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{tag}\n{text.strip()}\n{fence}"
