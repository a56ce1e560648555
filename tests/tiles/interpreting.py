"""Test files run as programs, with Triton's kernels interpreted: settled when they are imported.

One process, which has imported torch, Triton and torch's compiler, forks a child for each file.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import runpy
import select
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from assay.worker.interpreted import mend

PATIENCE_S = 280
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
"""Tensors are so small that more would only wait for each other."""

if os.environ.get("TRITON_INTERPRET") == "1":
    mend()


@functools.cache
def interpreted(file: str) -> Any:
    """What the file prints last when it is run."""
    server = _server()
    with tempfile.TemporaryDirectory() as folder:
        server.stdin.write(f"{json.dumps([file, folder])}\n")
        server.stdin.flush()
        ready, _, _ = select.select([server.stdout], [], [], PATIENCE_S)
        if not ready:
            server.kill()
            raise AssertionError(f"{file} is not done after {PATIENCE_S} seconds")
        assert server.stdout.readline() == "0\n", Path(folder, "err").read_text()
        return json.loads(Path(folder, "out").read_text().splitlines()[-1])


@functools.cache
def _server() -> subprocess.Popen[str]:
    words = [sys.executable, "-W", "ignore", "-c", "import interpreting; interpreting.serve()"]
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environment = {**os.environ, **ONE_THREAD, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    server = subprocess.Popen(words, env=environment, text=True, **pipes)
    atexit.register(server.communicate)  # which closes what it listens to, and waits for its end
    return server


def serve() -> None:
    """Runs the files it is told of, each in a child of its own, and says how each ended."""
    import torch

    # Torch's compiler loads most of itself with the first function.
    torch.compile(torch.sin, backend="aot_eager", fullgraph=True)(torch.zeros(1))
    for line in sys.stdin:
        file, folder = json.loads(line)
        if (child := os.fork()) == 0:
            _run(file, Path(folder))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(file: str, folder: Path) -> None:
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT), number)
    status = 1
    try:
        runpy.run_path(file, run_name="__main__")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
