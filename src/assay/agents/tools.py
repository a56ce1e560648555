"""The tools an agent is shown: names, what they are for, what they take. Written for somebody who knows
nothing of Assay.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from assay.agents.desk import Answer, Arguments, Desk
from assay.agents.house import Say
from assay.agents.judging_tools import bench, check, explain_code, profile
from assay.agents.queue_tools import queue_next, submit
from assay.agents.run_tools import MOST_SHOWN, archive_search

INSTRUCTIONS = """\
Assay judges GPU and CPU kernels. A problem is a PyTorch module (class Model with get_inputs()); a candidate
is a source file that has to compute the same: Python (torch, Triton), CUDA or C++. `check` says whether a
candidate is right, on declared and hidden inputs, whether it is honest, and how fast it is against eager
PyTorch and torch.compile. Work like this: `bench` once to see what has to be beaten; write a candidate;
`check` it with speed off until it passes, then with speed on; ask `explain` about any code you do not know.
Verdicts come one at a time."""

Handler = Callable[[Desk, Arguments, Say], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool."""

    name: str
    description: str
    properties: Mapping[str, Mapping[str, Any]]
    required: tuple[str, ...]
    run: Handler

    @property
    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {name: dict(what) for name, what in self.properties.items()},
            "required": list(self.required),
            "additionalProperties": False,
        }


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def _whole(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "integer", "description": description, **more}


def _switch(description: str, default: bool) -> dict[str, Any]:
    return {"type": "boolean", "description": description, "default": default}


_PROBLEM = {
    "problem": _text(
        "Path of the problem: a .py file with Model and get_inputs(), or a KernelBot task folder."
    ),
    "problem_source": _text("Instead of a path: the text of the problem's .py file."),
}
_CANDIDATE = {
    "candidate": _text("Path of the candidate: a .py, .cu or .cpp file."),
    "candidate_source": _text("Instead of a path: the text of the candidate."),
    "suffix": _text("What candidate_source is written in.", enum=[".py", ".cu", ".cpp"], default=".py"),
}
_SPEED = {"speed": _switch("Time it as well. Off is much quicker: right or wrong alone.", True)}

TOOLS = (
    Tool(
        "check",
        "Judge a candidate kernel against a problem: is it right on every case, declared and hidden, does "
        "it play fair, and is it faster than the best PyTorch baseline? Returns the status (passed, wrong, "
        "rejected, build_failed, crashed, timed_out), findings with codes, the first wrong elements, the "
        "speed ratio with its 95 % interval, and what to do next in words. With speed on, the first check "
        "of a problem can take minutes.",
        {**_PROBLEM, **_CANDIDATE, **_SPEED},
        (),
        check,
    ),
    Tool(
        "bench",
        "Time the baselines of a problem without a candidate: eager PyTorch and torch.compile in its modes, "
        "and the physical limit of this device. Says what a kernel has to beat. Can take minutes for a new "
        "problem.",
        _PROBLEM,
        (),
        bench,
    ),
    Tool(
        "profile",
        "Judge a candidate and say where its time goes: its time against each baseline, and how near it "
        "comes to the memory or compute limit of this device. Use it on a candidate that passes `check`.",
        {**_PROBLEM, **_CANDIDATE},
        (),
        profile,
    ),
    Tool(
        "explain",
        "What a status, an outcome or the code of a finding means, and what to do about it. Without a code: "
        "all codes, one line each.",
        {"code": _text("Such as rejected, input_modified or compile_error.")},
        (),
        explain_code,
    ),
    Tool(
        "archive_search",
        "Look into a run, a file that keeps judged candidates: the best of a problem, those whose source, "
        "name or note holds a text, or one candidate with its source, verdict, parents and children.",
        {
            "run": _text("Path of the run's .sqlite file."),
            "problem": _text("Only candidates for the problem of this name."),
            "text": _text("Only candidates that hold this text, in any case of letters."),
            "candidate": _whole("Show this one in full; the other filters are not used then.", minimum=1),
            "limit": _whole("How many to list.", minimum=1, maximum=50, default=MOST_SHOWN),
        },
        ("run",),
        archive_search,
    ),
    Tool(
        "queue_next",
        "Take the next open prompt of a running kernel search: what kernel is wanted, for which problem and "
        "device, what to start from and what is known. It is yours for an hour; answer with `submit`.",
        {
            "queue": _text("Path of the search's queue folder."),
            "wait_seconds": {
                "type": "number",
                "description": "Wait so long for a prompt if none is open.",
                "minimum": 0,
                "maximum": 600,
                "default": 0,
            },
        },
        ("queue",),
        queue_next,
    ),
    Tool(
        "submit",
        "Hand in a candidate. With queue: to a running search, as the answer to a prompt (request) or "
        "unasked; the search judges it. With run: judge it now against a problem, like `check`, and keep it "
        "with its verdict in that run's file, which is made if need be.",
        {
            "queue": _text("Path of the search's queue folder."),
            "request": _whole(
                "Number of the prompt that is answered; leave it out to hand in unasked.", minimum=1
            ),
            "note": _text("In a few words, what is different about this candidate."),
            "skip": _switch("Decline the prompt instead; note may say why.", False),
            "run": _text("Path of a run's .sqlite file."),
            "problem": _text("With run: path of the problem."),
            "parent": _whole("With run: number of the candidate this one was made from.", minimum=1),
            **_SPEED,
            **_CANDIDATE,
        },
        (),
        submit,
    ),
)
BY_NAME = {tool.name: tool for tool in TOOLS}
