"""`assay serve-judge`: keeps a judge warm for `assay check`, in the foreground, until it is stopped."""

from __future__ import annotations

import os
from pathlib import Path

import click

from assay.cli.judging import rest_idle_threads
from assay.daemon import places
from assay.daemon.client import Daemon, connect
from assay.records import UserError


@click.command("serve-judge")
@click.option("--device", help="cpu, cuda or cuda:N. Default: the GPU if there is one.")
@click.option(
    "--socket",
    "socket_path",
    type=click.Path(dir_okay=False),
    help="Where to listen. `assay check` looks at the usual place alone.",
)
@click.option(
    "--idle-exit",
    "idle_exit_s",
    type=click.FloatRange(min=0, min_open=True, max=86400),
    help="Stop after so many seconds without a client. Default: never.",
)
@click.option("--stop", is_flag=True, help="Stop the daemon that runs, whatever it is doing.")
@click.option("--status", is_flag=True, help="Say what the daemon that runs is doing.")
def serve_judge(
    device: str | None, socket_path: str | None, idle_exit_s: float | None, stop: bool, status: bool
) -> None:
    """Keep a judge warm, so that `assay check` takes seconds less.

    Runs in the foreground; stop it with Ctrl-C, SIGTERM or --stop. Problems are trusted code and run in it:
    only your own user may connect.
    """
    if stop and status:
        raise click.UsageError("--stop or --status, not both")
    path = Path(os.path.abspath(socket_path)) if socket_path else None
    if stop or status:
        with _running(device, path) as daemon:
            _stop(daemon) if stop else _describe(daemon)
        return
    rest_idle_threads(device)
    # Imported here: torch takes seconds.
    from assay.daemon.server import Settings, serve

    serve(Settings(device, path, idle_exit_s), _say_ready)
    click.echo("stopped")


def _say_ready(device: str, path: Path) -> None:
    click.echo(f"judging on {device} at {path}; stop with Ctrl-C or `assay serve-judge --stop`")


def _running(device: str | None, path: Path | None) -> Daemon:
    """The daemon a person means: the one at the socket, or the first that answers at a usual place."""
    names = places.likely_devices(device) if device is not None else ("cuda:0", "cpu")
    usual = [place for name in names if (place := places.default_socket(name)) is not None]
    found = [connect(place) for place in ([path] if path else usual)]
    daemons = [daemon for daemon in found if isinstance(daemon, Daemon)]
    if daemons:
        return daemons[0]
    reasons = [one.reason for one in found if one is not None and not isinstance(one, Daemon)]
    raise UserError("; ".join(reasons) or f"no judge daemon runs at {path or places.default_folder()}")


def _stop(daemon: Daemon) -> None:
    daemon.stop()
    click.echo(f"stopped the judge daemon on {daemon.status.device}")


def _describe(daemon: Daemon) -> None:
    now = daemon.status
    click.echo(
        f"{now.device}: up {now.uptime_s:.0f} s; verdicts: {now.verdicts}, in line: {now.queue}, "
        f"problems kept: {now.problems_kept}, judges: {now.judges} "
        f"(pid {now.pid}, assay {now.assay}, {daemon.path})"
    )
