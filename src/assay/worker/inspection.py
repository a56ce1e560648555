"""One tool over one candidate, of compute-sanitizer or ncu: started in the confined child, told to the judge.

The child itself never opens the GPU. It starts the tool, which starts the program (inspected.py); candidate
code runs there alone, under the child's user, namespaces, Landlock and limits, but without the filter of
system calls: CUDA does not start under it. What the program writes into its folder, the log included, is the
candidate's word: it can only add to what is held against it.

Not covered: what the log means (build/sanitizer_log.py, profile/counters.py).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import assay
from assay.worker import protocol
from assay.worker.messages import forged, printable

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
NCU = "ncu"
LOG_BYTES = 1 << 20
OUTPUT_BYTES = 4096
CONNECT_S = 120
"""How long the tool waits for the program to start CUDA; importing torch takes seconds."""
PADDING_BYTES = 8192
"""Between two allocations, so that what runs over the end of one does not land in the next."""
_PRINTED_ERRORS = 50
_COUNTED_LAUNCHES = 32
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from assay.worker.inspected import main; main(sys.argv[2])"
)


@dataclass(frozen=True, slots=True)
class Inspection:
    """What came of one tool."""

    status: int | None
    """As subprocess has it; None where it was stopped because its time was up."""
    log: str
    """The tool's own words."""
    output: str
    """The end of what the program printed."""


def run(head: dict[str, Any], payload: bytes, scratch: Path) -> tuple[dict[str, Any], bytes]:
    """Run the program over the task in `payload`, under the tool that `head` names.

    An empty `sanitizer` in `head` runs the program by itself.
    """
    folder = scratch / "inspected"
    folder.mkdir()
    task, log, output = folder / "task", folder / "log", folder / "output"
    task.write_bytes(payload)
    root = str(Path(assay.__file__).resolve().parent.parent)
    program = [sys.executable, "-I", "-B", "-c", _START, root, str(task)]
    tool = _tool(head, str(log))
    status: int | None
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [*tool, *program],
            cwd=folder,
            env=_environment(head["tool"]),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(head["timeout_s"])
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = None
    said = _ends_of(output, 0, OUTPUT_BYTES).decode(errors="replace")
    return {"ok": True, "status": status, "output": said}, _ends_of(log, LOG_BYTES // 2, LOG_BYTES // 2)


def _tool(head: dict[str, Any], log: str) -> list[str]:
    if head["tool"] == NCU:
        return ncu_command(head["ncu"], head["metrics"], log)
    return tool_command(head["sanitizer"], head["tool"], log) if head["sanitizer"] else []


def ncu_command(ncu: str, metrics: list[str], log: str) -> list[str]:
    """ncu with its options; it counts between the program's own marks alone."""
    command = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(metrics)]
    # Clocks as they are when candidates are timed; caches are emptied before each pass, as they are there.
    command += ["--clock-control", "none", "--cache-control", "all", "--profile-from-start", "off"]
    command += ["--target-processes", "application-only", "--launch-count", str(_COUNTED_LAUNCHES)]
    return [*command, "--log-file", log]


def tool_command(sanitizer: str, tool: str, log: str) -> list[str]:
    """compute-sanitizer with its options; the program and its arguments follow."""
    command = [sanitizer, "--tool", tool, "--log-file", log, "--print-limit", str(_PRINTED_ERRORS)]
    command += ["--launch-timeout", str(CONNECT_S), "--target-processes", "application-only"]
    # Frames of the host are Python's own, dozens for each error.
    command += ["--show-backtrace", "device"]
    if tool == "memcheck":
        command += ["--report-api-errors", "no", "--padding", str(PADDING_BYTES)]
    return command


def decode_inspection(reply: protocol.Message) -> Inspection:
    """The child's answer; it may be forged."""
    status, output = reply.head.get("status"), reply.head.get("output")
    if not (status is None or type(status) is int) or not isinstance(output, str):
        raise forged("no outcome of an inspection")
    log = reply.payload[: LOG_BYTES + 1].decode(errors="replace")
    return Inspection(status, printable(log), printable(output[-OUTPUT_BYTES:]))


def _environment(tool: str) -> dict[str, str]:
    if tool == NCU:
        return {**os.environ, "LC_ALL": "C"}  # numbers are written with points, not commas
    return {
        **os.environ,
        # Torch carves tensors out of larger blocks: a tensor's neighbour would hide an overrun.
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
        # The tool and the program talk to each other; sockets of the file system would have to lie in folders
        # that are closed here.
        "NV_COMPUTE_SANITIZER_LOCAL_CONNECTION_OVERRIDE": "tcp" if _has_loopback() else "uds",
    }


def _has_loopback() -> bool:
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=1),
        ):
            return True
    except OSError:
        return False


def _ends_of(path: Path, first_bytes: int, last_bytes: int) -> bytes:
    """A file without its middle, if it is long: a log has its first error there, its summary at the end."""
    try:
        with path.open("rb") as file:
            start = file.read(first_bytes)
            left_out = max(os.fstat(file.fileno()).st_size - first_bytes - last_bytes, 0)
            file.seek(left_out, os.SEEK_CUR)
            return start + b"\n" * bool(left_out) + file.read(last_bytes)
    except FileNotFoundError:
        return b""
