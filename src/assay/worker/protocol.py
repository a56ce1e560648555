"""Frames between judge and child: a JSON header, an optional payload, optional file descriptors.

The judge treats everything that arrives from a child as hostile: lengths are capped, JSON is decoded
strictly, descriptors are never accepted. No pickle. Not covered: what the messages mean (see child.py and
handle.py).
"""

from __future__ import annotations

import array
import json
import socket
import struct
from typing import Any, NamedTuple

HEADER = struct.Struct(">II")
MAX_HEADER_BYTES = 4 << 20
MAX_PAYLOAD_BYTES = 256 << 20
MAX_FDS = 8


class ProtocolError(Exception):
    """The other side did not speak the protocol."""


class Closed(Exception):
    """The other side is gone."""


class Message(NamedTuple):
    head: dict[str, Any]
    payload: bytes
    fds: tuple[int, ...]


def send(sock: socket.socket, head: dict[str, Any], payload: bytes = b"", fds: tuple[int, ...] = ()) -> None:
    text = json.dumps(head, allow_nan=False).encode()
    frame = HEADER.pack(len(text), len(payload)) + text
    try:
        if fds:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
            sent = sock.sendmsg([frame], rights)
            frame = frame[sent:]
        sock.sendall(frame)
        if payload:
            sock.sendall(payload)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise Closed from error


def receive_trusted(sock: socket.socket) -> Message:
    """Blocking receive with descriptors, for the side that trusts its peer (the child, from the judge)."""
    data, rights, _flags, _addr = sock.recvmsg(HEADER.size, socket.CMSG_SPACE(MAX_FDS * 4))
    fds: list[int] = []
    for level, kind, body in rights:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            got = array.array("i")
            got.frombytes(body[: len(body) - len(body) % got.itemsize])
            fds.extend(got)
    while len(data) < HEADER.size:
        more = sock.recv(HEADER.size - len(data)) if data else b""
        if not more:
            raise Closed
        data += more
    head_bytes, payload_bytes = HEADER.unpack(data)
    head = _exactly(sock, head_bytes)
    return Message(json.loads(head), _exactly(sock, payload_bytes), tuple(fds))


def _exactly(sock: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        more = sock.recv(min(1 << 20, count - len(parts)))
        if not more:
            raise Closed
        parts += more
    return bytes(parts)


class Reader:
    """Non-blocking, size-capped decoding of what an untrusted peer sends."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = bytearray()

    def feed(self) -> bool:
        """Take what is there; False at the end of the stream."""
        try:
            more = self._sock.recv(1 << 20, socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return True
        except ConnectionResetError:
            return False
        self._buffer += more
        return bool(more)

    def next(self) -> Message | None:
        if len(self._buffer) < HEADER.size:
            return None
        head_bytes, payload_bytes = HEADER.unpack_from(self._buffer)
        if head_bytes > MAX_HEADER_BYTES or payload_bytes > MAX_PAYLOAD_BYTES:
            raise ProtocolError("oversized frame")
        end = HEADER.size + head_bytes + payload_bytes
        if len(self._buffer) < end:
            return None
        text = bytes(self._buffer[HEADER.size : HEADER.size + head_bytes])
        payload = bytes(self._buffer[HEADER.size + head_bytes : end])
        del self._buffer[:end]
        return Message(_strict_object(text), payload, ())


def _strict_object(text: bytes) -> dict[str, Any]:
    try:
        head = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("not JSON") from error
    if not isinstance(head, dict):
        raise ProtocolError("not an object")
    return head


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
