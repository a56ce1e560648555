"""`assay mcp`: the judge as tools for coding agents, over stdin and stdout or over HTTP."""

from __future__ import annotations

import importlib.util
import secrets
from pathlib import Path
from typing import Any

import click

from assay.cli.judging import rest_idle_threads
from assay.cli.options import baseline_options, judging_options, policy_fields
from assay.records import UserError

LOOPBACK = "127.0.0.1"
PORT = 8321
LEAST_TOKEN = 16


@click.command()
@click.option(
    "--root",
    "roots",
    multiple=True,
    type=click.Path(),
    help="Folder whose files agents may name; may be given several times. Default: the current one.",
)
@click.option("--device", help="cpu, cuda or cuda:N. Default: the GPU if there is one.")
@click.option("--http", "over_http", is_flag=True, help="Listen for HTTP instead of using stdin and stdout.")
@click.option("--host", default=LOOPBACK, show_default=True, help="With --http: where to listen.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="With --http; 0 for any that is free.",
)
@click.option(
    "--token",
    envvar="ASSAY_MCP_TOKEN",
    help="With --http: what clients have to say, $ASSAY_MCP_TOKEN as well. Default: a new one, printed.",
)
@click.option("--no-daemon", is_flag=True, help="Judge in this process even if `assay serve-judge` runs.")
@judging_options
@baseline_options
def mcp(
    roots: tuple[str, ...],
    device: str | None,
    over_http: bool,
    host: str,
    port: int,
    token: str | None,
    no_daemon: bool,
    **switches: Any,
) -> None:
    """Offer the judge to coding agents as MCP tools.

    Over stdin and stdout, the agent starts this command by itself; over HTTP, start it and give the agent the
    address and the token. Problems are trusted code: whoever may call the tools may run code as you.
    """
    if token is not None and len(token) < LEAST_TOKEN:
        raise UserError(f"the token has fewer than {LEAST_TOKEN} characters: leave it out to be given one")
    policy = policy_fields(**switches)
    rest_idle_threads(device)
    if importlib.util.find_spec("mcp") is None:
        raise UserError("the MCP package is missing: pip install 'assay[agents]'")
    from assay.agents import server
    from assay.agents.desk import Desk
    from assay.agents.house import House
    from assay.agents.roots import Roots

    known = Roots([Path(root) for root in roots or (".",)])
    desk = Desk(known, House(device, policy, use_daemon=not no_daemon))
    try:
        if not over_http:
            server.serve_stdio(desk)
            return
        listener = server.open_port(host, port)
        click.echo(f"listening at http://{_shown(host)}:{listener.getsockname()[1]}{server.PATH}")
        if token is None:
            token = secrets.token_urlsafe(24)
            click.echo(f"clients say: Authorization: Bearer {token}")
        server.serve_http(desk, listener, token)
    finally:
        desk.close()


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
