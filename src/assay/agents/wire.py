"""Lines of a client that cannot be read: they are answered, so that nobody waits for ever.

The protocol's own reader drops them. Not covered: replies and notifications, to which nothing is answered.
"""

from __future__ import annotations

import contextlib
import json
import re
from types import TracebackType
from typing import Any, Self

import anyio
import mcp_types as types
import pydantic
from mcp.shared.message import SessionMessage

HALF = re.compile("[\ud800-\udfff]")
UNWRITABLE = "the request holds text that UTF-8 cannot write, half of a surrogate pair: send whole characters"


class Heard:
    """What a client says, without the lines that cannot be read."""

    def __init__(self, read: Any, write: Any) -> None:
        self._read = read
        self._write = write

    async def receive(self) -> SessionMessage:
        while True:
            said: SessionMessage | Exception = await self._read.receive()
            if isinstance(said, SessionMessage):
                return said
            refusal = refuse(said)
            if refusal is not None:
                await self._write.send(SessionMessage(refusal))

    async def aclose(self) -> None:
        await self._read.aclose()

    def __aiter__(self) -> Heard:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        await self.aclose()
        return None


def refuse(trouble: Exception) -> types.JSONRPCError | None:
    """The answer to a line that the protocol's reader refused; None where there is nobody to answer."""
    if not isinstance(trouble, pydantic.ValidationError):
        return None
    errors = trouble.errors(include_url=False)
    first = errors[0]
    if first["type"] != "json_invalid":
        # Somewhere in it is the whole message: no kind of message has all that the others need.
        whole = next((one["input"] for one in errors if one["type"] == "missing"), None)
        return _refusal(types.INVALID_REQUEST, "this is no request of the protocol", whole)
    text = str(first["input"])
    if not text.strip():
        return None
    said, why = None, f"this cannot be read: {first['msg']}"
    with contextlib.suppress(ValueError, RecursionError):
        said = json.loads(text)
        why = UNWRITABLE if has_half(said) else why
    return _refusal(types.PARSE_ERROR, why, said)


def has_half(value: Any) -> bool:
    """Whether a text within it could not be written as UTF-8."""
    return HALF.search(json.dumps(value, ensure_ascii=False)) is not None


def _refusal(code: int, why: str, said: Any) -> types.JSONRPCError | None:
    number = said.get("id") if isinstance(said, dict) else None
    if isinstance(said, dict) and ("id" not in said or "result" in said or "error" in said):
        return None
    known = number if type(number) in (int, str) and not has_half(number) else None
    return types.JSONRPCError(jsonrpc="2.0", id=known, error=types.ErrorData(code=code, message=why))
