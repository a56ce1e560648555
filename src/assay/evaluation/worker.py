"""A worker: one judge in a process of its own, asked one candidate at a time by lines of JSON.

    python -m assay.evaluation.worker REQUESTS_FD ANSWERS_FD

The first line says which judge; every further one brings a candidate, perhaps with what another machine
built for it, perhaps with the next one, which is built meanwhile. Answers carry the verdict's record, or why
there is none. `hello` asks what to build for.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

from assay.archive import UNREADABLE
from assay.build import ShippedBuild
from assay.candidates import Candidate, candidate_from_source
from assay.judge import Judge, Policy
from assay.problems import Problem, load_problem
from assay.records import AssayError, UserError, from_plain, to_plain


class Worker:
    """A judge and the problems it knows."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._problems: dict[str, Problem] = {}
        self._builder = ThreadPoolExecutor(1)

    def close(self) -> None:
        self._builder.shutdown(wait=True, cancel_futures=True)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """One candidate's end."""
        start = time.monotonic()
        if "hello" in request:
            return {"id": request["id"], "cuda_arch": self._judge.cuda_arch}
        try:
            candidate = _candidate(request)
        except UserError as error:  # a model's answer that holds no kernel is the model's doing
            return {"id": request["id"], UNREADABLE: str(error), "seconds": time.monotonic() - start}
        if request.get("built"):
            self._judge.keep_build(from_plain(ShippedBuild, request["built"], "built"))
        if request.get("ahead"):
            self._builder.submit(self._build, request["ahead"])
        try:
            verdict = self._judge.evaluate(self._problem(request["path"]), candidate, request["worth"])
        except AssayError as error:
            reply: dict[str, Any] = {"failure": f"{type(error).__name__}: {error}"}
        else:
            reply = {"verdict": to_plain(verdict)}
        return {"id": request["id"], **reply, "seconds": round(time.monotonic() - start, 3)}

    def _problem(self, path: str) -> Problem:
        if path not in self._problems:
            self._problems[path] = load_problem(path)
        return self._problems[path]

    def _build(self, request: dict[str, Any]) -> None:
        """In a thread whose end nobody looks at: what goes wrong here does so again when it is judged."""
        self._judge.build_ahead(self._problem(request["path"]), _candidate(request))


def _candidate(request: dict[str, Any]) -> Candidate:
    return candidate_from_source(request["source"], request["name"], request["suffix"])


def serve(requests: IO[str], answers: IO[str]) -> None:
    """Until there are no more requests."""
    settings = json.loads(requests.readline())
    with Judge(settings["device"], from_plain(Policy, settings["policy"], "policy")) as judge:
        worker = Worker(judge)
        try:
            for line in requests:
                answers.write(json.dumps(worker.answer(json.loads(line))) + "\n")
                answers.flush()
        finally:
            worker.close()


def _end(_signal: int, _frame: object) -> None:
    """The first time it is told to; a second word would only interrupt the cleaning up."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> None:
    signal.signal(signal.SIGTERM, _end)
    requests, answers = (int(number) for number in sys.argv[1:3])
    with (
        contextlib.suppress(KeyboardInterrupt, BrokenPipeError),  # whoever asked is gone
        os.fdopen(requests, encoding="utf-8") as asked,
        os.fdopen(answers, "w", encoding="utf-8") as told,
    ):
        serve(asked, told)
        # What is left is cleaning up, which nobody has to hurry.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


if __name__ == "__main__":
    main()
