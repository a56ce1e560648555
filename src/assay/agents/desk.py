"""What every tool needs: the files it may read, the judge, and a place for sources that come as text."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from assay.agents.house import House, Say
from assay.agents.judge_thread import JudgeThread
from assay.agents.roots import Roots
from assay.candidates import Candidate, read_candidate
from assay.records import UserError, digest

T = TypeVar("T")
Arguments = Mapping[str, Any]
"""Of a tool, as its schema has let them through."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool says: words for the agent, and the same as data for its program."""

    text: str
    data: dict[str, Any] = field(default_factory=dict)


class Desk:
    """Shared by all calls of all clients."""

    def __init__(self, roots: Roots, house: House) -> None:
        self.roots = roots
        self.house = house
        self._thread = JudgeThread()
        self._folder = tempfile.TemporaryDirectory(prefix="assay-mcp-")

    @property
    def is_busy(self) -> bool:
        """Whether a verdict is being given, or waits its turn."""
        return self._thread.unfinished > 0

    def close(self) -> None:
        self._folder.cleanup()
        self.house.close()

    async def judge(self, job: Callable[[], T], say: Say) -> T:
        """A job for the judge's thread, when its turn comes."""
        if ahead := self._thread.unfinished:
            say(f"queued, {ahead} ahead")
        return await asyncio.wrap_future(self._thread.submit(job))

    def path(self, arguments: Arguments, name: str) -> Path:
        return self.roots.resolve(str(arguments[name]))

    def problem(self, arguments: Arguments) -> Path:
        """A file or folder below the roots, or the text of one written to a file of ours."""
        if _which(arguments, "problem") == "problem":
            return self.path(arguments, "problem")
        return self._keep(str(arguments["problem_source"]), "problem.py")

    def candidate(self, arguments: Arguments) -> Path:
        if _which(arguments, "candidate") == "candidate":
            return self.path(arguments, "candidate")
        suffix = str(arguments.get("suffix", ".py"))
        return self._keep(str(arguments["candidate_source"]), f"candidate{suffix}")

    def read_candidate(self, arguments: Arguments) -> Candidate:
        return read_candidate(self.candidate(arguments))

    def _keep(self, text: str, name: str) -> Path:
        """By its contents: the same text is the same file, and a problem is prepared once."""
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise UserError(f"the source holds text that UTF-8 cannot write: {error.reason}") from error
        path = Path(self._folder.name, f"given-{digest(data)[:12]}", name)
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            path.write_bytes(data)
        return path


def _which(arguments: Arguments, name: str) -> str:
    given = [key for key in (name, f"{name}_source") if arguments.get(key) is not None]
    if len(given) != 1:
        raise UserError(f"give one of {name} (a path) and {name}_source (the text), not both")
    return given[0]
