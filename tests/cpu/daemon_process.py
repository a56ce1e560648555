"""Daemons that the tests start, and the files they are asked about."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostile_walk import CANDIDATES

import assay
from assay.daemon import protocol
from assay.daemon.client import Daemon, connect

QUICK = {"derive_hidden": False, "speed": False}
TINY = """
import torch

rows = 8
cols = 16


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0


def get_inputs():
    return [torch.randn(rows, cols)]
"""
RIGHT = "import torch\ndef forward(x):\n    return torch.clamp(x, min=0) + 1.0\n"
WRONG = "import torch\ndef forward(x):\n    return torch.clamp(x, min=0) + 1.001\n"
# Written for Triton as far as the judge can see, so that on a CPU nothing is timed.
UNTIMED = f"import triton\n{WRONG}"
BARE = """
// assay: out y = torch.empty_like(x)
// assay: call add(x, y, x.numel())
// assay: return y
extern "C" void add(const float* x, float* y, long n) {
    for (long i = 0; i < n; i++) y[i] = (x[i] > 0 ? x[i] : 0.0f) + 1.0f;
}
"""
PATIENCE_S = 120.0


@dataclass
class Running:
    """A daemon process of this test."""

    process: subprocess.Popen[str]
    folder: Path
    """Stands in for XDG_RUNTIME_DIR."""

    @property
    def path(self) -> Path:
        return self.folder / "assay" / "judge-cpu.sock"

    @property
    def environment(self) -> dict[str, str]:
        return environment(self.folder)

    def client(self) -> Daemon:
        found = connect(self.path)
        assert isinstance(found, Daemon), found
        return found

    def status(self) -> protocol.Status:
        with self.client() as daemon:
            return daemon.status

    def check(self, problem: Path, candidate: Path, policy: dict[str, Any] | None = None) -> Any:
        with self.client() as daemon:
            return daemon.check(str(problem), str(candidate), policy or QUICK, lambda words: None)


def environment(folder: Path) -> dict[str, str]:
    # One thread: these tensors are so small that more only wait for each other.
    return {
        **os.environ,
        "XDG_RUNTIME_DIR": str(folder),
        "ASSAY_CACHE": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
    }


def launch(folder: Path, *options: str, code: str = "") -> Running:
    """Start a daemon at the usual place below `folder`; `code` runs in it first."""
    folder.mkdir(exist_ok=True)
    text = f"import sys\n{code}\nfrom assay.cli.main import main\nmain()"
    command = [sys.executable, "-c", text, "serve-judge", "--device", "cpu", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment(folder), text=True
    )
    return Running(process, folder)


def when_ready(running: Running) -> Running:
    said = []
    for line in running.process.stdout or ():
        said.append(line)
        if str(running.path) in line:
            return running
    raise AssertionError("".join(said))


def end(running: Running) -> None:
    """Ask a daemon to leave, which takes its processes and its socket along."""
    has_judged = running.status().verdicts > 0
    below = descendants(running.process.pid)
    running.process.terminate()
    assert running.process.wait(PATIENCE_S) == 0
    assert not running.path.exists()
    assert not [pid for pid in below if alive(pid)]
    assert below or not has_judged


def write_files(folder: Path) -> None:
    texts = {"tiny.py": TINY, "right.py": RIGHT, "wrong.py": WRONG, "untimed.py": UNTIMED, "bare.cpp": BARE}
    for name, text in texts.items():
        (folder / name).write_text(text)


def request(**changes: Any) -> bytes:
    plain = {"op": "check", "problem": "/nowhere.py", "candidate": str(CANDIDATES / "abort.py")}
    plain |= {"policy": QUICK, "assay": assay.__version__, **changes}
    return json.dumps({k: v for k, v in plain.items() if v is not None}).encode() + b"\n"


def descendants(pid: int) -> set[int]:
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := stat_fields(int(name))):
            parents[int(name)] = int(fields[1])
    found, new = set(), {pid}
    while new:
        found |= new
        new = {child for child, parent in parents.items() if parent in new} - found
    return found - {pid}


def alive(pid: int) -> bool:
    fields = stat_fields(pid)
    return bool(fields) and fields[0] not in ("Z", "X")


def stat_fields(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
