"""Asks a running daemon. Imports neither torch nor the judge: a client costs milliseconds, not seconds.

A daemon that is not there is None; one that is there but of no use is `Unavailable` with the reason, and the
caller judges in its own process. Once it has taken a request, its end is a JudgeFault: were every client to
judge for itself then, all of them would share one device.

Not covered: starting a daemon.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import assay
from assay.daemon import places, protocol
from assay.daemon.protocol import CheckRequest, Closed, Garbled, Lines, Status
from assay.records.codec import from_plain, to_plain
from assay.records.decoding import decode_verdict
from assay.records.errors import AssayError, JudgeFault, UserError
from assay.records.verdict import Verdict

ANSWER_TIMEOUT_S = 5.0
"""For what a daemon answers however busy it is."""
STOP_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A daemon that cannot be used."""

    reason: str


class Daemon:
    """A connection to a daemon that has said who it is."""

    def __init__(self, stream: socket.socket, lines: Lines, status: Status, path: Path) -> None:
        self._stream = stream
        self._lines = lines
        self.status = status
        self.path = path

    def __enter__(self) -> Daemon:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._stream.close()

    def check(
        self, problem: str, candidate: str, policy: Mapping[str, Any], on_progress: Callable[[str], None]
    ) -> Verdict:
        """Have a candidate judged; raises what the judge raised."""
        request = CheckRequest(
            os.path.abspath(problem), os.path.abspath(candidate), policy, assay.__version__
        )
        self._stream.settimeout(None)  # the line may be long
        message: dict[str, Any] | None = {"op": "check", **to_plain(request)}
        while True:
            reply, message = self._exchange(message), None
            if "error" in reply:
                raise protocol.received_error(reply["error"])
            if "verdict" in reply:
                return decode_verdict(reply["verdict"])
            on_progress(str(reply.get("progress")))

    def stop(self) -> None:
        """Tell it to stop and wait until it has gone."""
        self._stream.settimeout(STOP_TIMEOUT_S)
        try:
            protocol.send(self._stream, {"op": "stop"})
            while self._lines.next() is not None:
                pass
        except (Closed, Garbled) as error:
            raise JudgeFault(f"the daemon at {self.path} (pid {self.status.pid}) does not end") from error

    def _exchange(self, message: dict[str, Any] | None) -> dict[str, Any]:
        """Say something, if there is something to say, and hear the next line."""
        try:
            if message is not None:
                protocol.send(self._stream, message)
            reply = self._lines.next()
        except (Closed, Garbled) as error:
            raise self._gone() from error
        if reply is None:
            raise self._gone()
        return reply

    def _gone(self) -> JudgeFault:
        return JudgeFault(f"the daemon at {self.path} ended before the verdict; try again with --no-daemon")


def connect(path: Path) -> Daemon | Unavailable | None:
    """The daemon at a socket; None if there is no socket."""
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream.settimeout(ANSWER_TIMEOUT_S)
    try:
        stream.connect(str(path))
        _pid, uid = places.peer(stream)
        if uid != os.geteuid():
            raise UserError(f"it belongs to user {uid}")
        lines = Lines(stream, protocol.MAX_REPLY_BYTES)
        return Daemon(stream, lines, _ask_status(stream, lines), path)
    except FileNotFoundError:
        stream.close()
        return None
    except (OSError, Closed, Garbled, AssayError) as error:
        stream.close()
        stale = isinstance(error, ConnectionRefusedError)
        words = "nobody answers (a stale socket)" if stale else str(error)
        return Unavailable(f"no judge daemon to ask at {path}: {words}")


def find_daemon(device: str | None) -> Daemon | Unavailable | None:
    """The daemon that judges just as this process would on `device`."""
    last: Unavailable | None = None
    for name in places.likely_devices(device):
        path = places.default_socket(name)
        found = connect(path) if path is not None else None
        if isinstance(found, Daemon):
            objection = _objection(found.status, name)
            if not objection:
                return found
            found.close()
            found = Unavailable(objection)
        last = last or found
    return last


def _ask_status(stream: socket.socket, lines: Lines) -> Status:
    protocol.send(stream, {"op": "status"})
    reply = lines.next()
    if reply is None:
        raise Closed("it hangs up")
    if "error" in reply:
        raise protocol.received_error(reply["error"])
    plain = reply.get("status")
    version = plain.get("assay") if isinstance(plain, dict) else None
    try:
        return from_plain(Status, plain, "status")
    except UserError as error:
        # Another version may say other things about itself.
        raise error if version == assay.__version__ else UserError(_other_version(version)) from error


def _objection(status: Status, device: str) -> str:
    """Why this daemon's verdict might not be that of this process; empty if it would be."""
    if status.assay != assay.__version__:
        return _other_version(status.assay)
    if status.source != places.source_stamp():
        return "the judge daemon was started from other source than there is now: restart it"
    if status.device != device:
        return f"the judge daemon is for {status.device}, not for {device}"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if device.startswith("cuda") and status.visible_devices != visible:
        return f"the judge daemon has CUDA_VISIBLE_DEVICES={status.visible_devices}, this shell has {visible}"
    return ""


def _other_version(version: object) -> str:
    return f"the judge daemon is assay {version}, this is {assay.__version__}: restart it"
