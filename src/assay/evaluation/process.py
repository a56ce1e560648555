"""A worker process of this machine, asked by lines of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import IO, Any

from assay.records import JudgeFault

ENDS_WITHIN_S = 30.0


class WorkerProcess:
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
