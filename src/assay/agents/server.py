"""The tools over the Model Context Protocol: on stdin and stdout for one client, or over HTTP for several.

What Assay raises on purpose becomes a tool's error in one line. In stdio mode nothing but protocol messages
may reach stdout: the protocol keeps the real one to itself, and whatever else is printed goes to stderr.

Not covered: users with different rights. Whoever may call tools may have problem code run as the user of the
server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
import threading
from typing import Any

import jsonschema
import mcp_types as types
import uvicorn
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from starlette.types import ASGIApp, Receive, Scope, Send

import assay
from assay.agents.desk import Arguments, Desk
from assay.agents.house import Say
from assay.agents.tools import BY_NAME, INSTRUCTIONS, TOOLS, Tool
from assay.agents.wire import Heard
from assay.records import AssayError, UserError, to_plain

PATH = "/mcp"
LONGEST_ERROR = 800
LEAVES_WITHIN_S = 3
"""Official clients send SIGTERM two seconds after they have closed stdin, and SIGKILL two seconds later."""


def make_server(desk: Desk) -> Server:
    """The server and its tools, without a transport."""

    async def list_tools(
        _context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in TOOLS])

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        try:
            tool, arguments = _asked(params.name, params.arguments or {})
            answer = await tool.run(desk, arguments, _teller(context))
        except UserError as error:
            return _failed(str(error))
        except AssayError as error:
            return _failed(f"the judge failed, no verdict: {error}")
        content = types.TextContent(type="text", text=answer.text)
        return types.CallToolResult(content=[content], structured_content=to_plain(answer.data))

    return Server(
        "assay",
        version=assay.__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _described(tool: Tool) -> types.Tool:
    return types.Tool(name=tool.name, description=tool.description, input_schema=tool.schema)


def _asked(name: str, arguments: dict[str, Any]) -> tuple[Tool, Arguments]:
    """The tool with arguments that it takes."""
    tool = BY_NAME.get(name)
    if tool is None:
        raise UserError(f"no tool is called {name[:60]!r}; there are {', '.join(BY_NAME)}")
    # An argument that is null is one that was left out.
    given = {key: value for key, value in arguments.items() if value is not None}
    errors = jsonschema.Draft202012Validator(tool.schema).iter_errors(given)
    wrong = jsonschema.exceptions.best_match(errors)
    if wrong is not None:
        where = "".join(f"{part}: " for part in wrong.path)
        raise UserError(f"{name}: {where}{wrong.message}")
    return tool, given


def _failed(text: str) -> types.CallToolResult:
    line = " ".join(text.split())
    line = line if len(line) <= LONGEST_ERROR else f"{line[:LONGEST_ERROR]} (cut)"
    return types.CallToolResult(content=[types.TextContent(type="text", text=line)], is_error=True)


def _teller(context: ServerRequestContext[Any]) -> Say:
    """Progress for the client, told from any thread."""
    loop = asyncio.get_running_loop()
    told = 0

    def say(words: str) -> None:
        nonlocal told
        told += 1
        asyncio.run_coroutine_threadsafe(context.session.report_progress(told, message=words), loop)

    return say


# ---- stdin and stdout


def serve_stdio(desk: Desk) -> None:
    """Until the client closes stdin or a signal comes."""
    asyncio.run(_serve_stdio(desk))
    if desk.is_busy:
        _leave(desk)


async def _serve_stdio(desk: Desk) -> None:
    server = make_server(desk)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _leave, desk)
    # Python's own stdout is redirected as well: what is still in its buffer at the end would be written to
    # the real one, which is given back then.
    async with stdio_server() as (read, write):
        with contextlib.redirect_stdout(sys.stderr):
            await server.run(Heard(read, write), write, server.create_initialization_options())


def _leave(desk: Desk) -> None:
    """End the process with its threads: neither one that waits for a line of stdin nor one in the middle of a
    verdict can be interrupted. Children of the judge end when it does."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    closing = threading.Thread(target=desk.close, daemon=True)
    closing.start()
    closing.join(LEAVES_WITHIN_S)
    os._exit(0)


# ---- HTTP


def open_port(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise UserError(
            f"cannot listen at {host}:{port} ({error.strerror}): choose --host or --port"
        ) from error


def serve_http(desk: Desk, listener: socket.socket, token: str) -> None:
    """Until a signal comes; clients say the token with every request."""
    host = str(listener.getsockname()[0])
    app = TokenGate(make_server(desk).streamable_http_app(streamable_http_path=PATH, host=host), token)
    config = uvicorn.Config(
        app, log_config=None, lifespan="on", timeout_graceful_shutdown=LEAVES_WITHIN_S, access_log=False
    )
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn passes the signal on once it has ended
        uvicorn.Server(config).run(sockets=[listener])
    if desk.is_busy:
        _leave(desk)


class TokenGate:
    """Lets through whoever says the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_known(scope):
            await self._app(scope, receive, send)
            return
        headers = [(b"content-type", b"text/plain"), (b"www-authenticate", b"Bearer")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b"say the token: Authorization: Bearer TOKEN\n"})

    def _is_known(self, scope: Scope) -> bool:
        given = [value for name, value in scope.get("headers", ()) if name.lower() == b"authorization"]
        return len(given) == 1 and secrets.compare_digest(given[0], self._expected)
