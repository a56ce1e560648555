"""What the hostile walk knows about its candidates, and how it looks for what they leave behind."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from assay.judge import Policy

FOLDER = Path(__file__).parent
PROBLEM = FOLDER / "problem.py"
CANDIDATES = FOLDER / "candidates"
SUFFIXES = (".py", ".cpp", ".cu")
SMALL_LIMITS = Policy(
    derive_hidden=False,
    speed=False,
    call_timeout_s=3,
    load_timeout_s=5,
    memory_bytes=2 << 30,
    scratch_bytes=64 << 20,
    processes=64,
)
HEALTHY = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0) + 1.0
"""
_HEADER = re.compile(r"^(?:#|//) (\w+): (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Expectation:
    """The header of one candidate file."""

    path: Path
    statuses: tuple[str, ...]
    finding: str | None
    devices: tuple[str, ...]


def read_expectation(path: Path) -> Expectation:
    header = dict(_HEADER.findall(path.read_text(encoding="utf-8")))
    devices = tuple(header.get("devices", "cpu cuda").split())
    return Expectation(path, tuple(header["expect"].split()), header.get("finding"), devices)


def candidates_in(folder: Path) -> list[object]:
    """Parameters, one per file."""
    paths = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)
    return [pytest.param(read_expectation(path), id=path.name) for path in paths]


def processes_of(uids: set[int]) -> dict[int, str]:
    """Living processes under one of these users."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            status = Path(f"/proc/{name}/status").read_text(encoding="utf-8")
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        uid = int(fields["Uid"].split()[0])
        if uid in uids and not fields["State"].startswith(("Z", "X")):
            found[int(name)] = f"{fields['Name']} uid {uid}"
    return found


def marks_left() -> list[str]:
    """Files that hostile candidates try to leave outside of their scratch folders."""
    folders = [Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path("/run"), Path("/"), Path.home()]
    folders += [Path.home() / ".cache" / "assay", FOLDER.parents[1], FOLDER.parents[1] / "src" / "assay"]
    patterns = ("assay_hostile_mark*", "fill-*")
    return [
        str(p) for folder in folders if folder.is_dir() for pattern in patterns for p in folder.glob(pattern)
    ]
