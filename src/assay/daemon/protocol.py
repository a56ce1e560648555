"""What client and daemon say to each other: one JSON object per line, both ways.

    {"op": "check", "problem": path, "candidate": path, "policy": {...}, "assay": version}
        {"progress": text}, any number of times, then {"verdict": record} or {"error": {"kind", "message"}}
    {"op": "status"}    {"status": {...}} or an error
    {"op": "stop"}      {"stopping": true}, then the end of the stream

A connection may carry several requests, one after the other. Lines are capped; what does not parse ends the
connection with an error that says why. Not covered: who may speak at all (places.py), and what is done
about a request (server.py).
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.records.errors import AssayError, JudgeFault, UserError

MAX_REQUEST_BYTES = 64 << 10
"""Two paths and a policy."""
MAX_REPLY_BYTES = 64 << 20
"""A verdict: its largest parts are capped by the judge, far below this."""
_CHUNK_BYTES = 64 << 10


class Closed(Exception):
    """The other side is gone, or takes too long to read or write."""


class Garbled(Exception):
    """The other side did not send one JSON object on one line; the text says what instead."""


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """One candidate to judge. Paths, not contents: the daemon reads what lies there now."""

    problem: str
    candidate: str
    policy: Mapping[str, Any]
    """Fields of a Policy; those left out keep their defaults."""
    assay: str
    """The client's version."""


@dataclass(frozen=True, slots=True)
class Status:
    """What a daemon says about itself."""

    assay: str
    source: str
    """`places.source_stamp` of when it started."""
    pid: int
    device: str
    visible_devices: str | None
    """CUDA_VISIBLE_DEVICES as the daemon has it: under another value the same name is another GPU."""
    uptime_s: float
    verdicts: int
    queue: int
    """Requests waiting or running."""
    problems_kept: int
    """Prepared problems, over all judges."""
    judges: int


class Lines:
    """Size-capped lines from a stream socket, each decoded to an object."""

    def __init__(self, stream: socket.socket, limit_bytes: int) -> None:
        self._stream = stream
        self._limit_bytes = limit_bytes
        self._buffer = bytearray()

    def next(self) -> dict[str, Any] | None:
        """The next object; None where the stream ends between two lines."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > self._limit_bytes:
                raise Garbled(f"the line is longer than {self._limit_bytes} bytes")
            try:
                more = self._stream.recv(_CHUNK_BYTES)
            except OSError as error:  # reset, or the socket's own time limit
                raise Closed(str(error)) from error
            if not more and self._buffer:
                raise Closed("ended in the middle of a line")
            if not more:
                return None
            self._buffer += more
        if end > self._limit_bytes:
            raise Garbled(f"the line is longer than {self._limit_bytes} bytes")
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return _object(line)


def send(stream: socket.socket, message: Mapping[str, Any]) -> None:
    """Write one line. ASCII on the wire, so that no path, however odd, makes a line that cannot be sent."""
    line = json.dumps(message, allow_nan=False).encode("ascii") + b"\n"
    try:
        stream.sendall(line)
    except OSError as error:
        raise Closed(str(error)) from error


def error_message(error: AssayError) -> dict[str, Any]:
    """An error on its way to the client."""
    kind = "user" if isinstance(error, UserError) else "fault"
    return {"error": {"kind": kind, "message": str(error)}}


def received_error(plain: Any) -> AssayError:
    """The same error on the client's side."""
    if not isinstance(plain, dict):
        return JudgeFault("the judge daemon sent an error without words")
    message = str(plain.get("message"))
    return UserError(message) if plain.get("kind") == "user" else JudgeFault(message)


def _object(line: bytes) -> dict[str, Any]:
    try:
        plain = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Garbled(f"not a JSON object on one line: {line[:60]!r}") from error
    if not isinstance(plain, dict):
        raise Garbled(f"not a JSON object: {line[:60]!r}")
    return plain


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
