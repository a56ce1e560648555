"""A corpus: candidate files whose headers say what they do and what they must get.

A header line is a comment `# name: value` (`// name: value` in C++ and CUDA):

    catalogue  a number for what kind of attack it is; none on an honest kernel
    problem    the specification it is judged against: NAME.py in the folder `problems` beside it or above it,
               or NAME_cuda.py there, which is larger, on a GPU
    mechanism  one sentence
    expect     statuses it may get; "passed" if not said
    finding    the code that must be among its findings, unless it passed
    devices    where it can run; "cpu cuda" if not said
    gate       "speed" if it has to be timed
    speed      what it may be called if it passed: an attack that did the work and gained nothing, or what an
               honest kernel must be called
    twin       the honest kernel it may not beat by more than the margin
    rules      "no_libraries" if it is judged where library calls are forbidden
    open       devices on which the judge is known to be fooled, with the reason under `because`

Not covered: running them (walk.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from assay.records import UserError

SUFFIXES = (".py", ".cpp", ".cu")
STATUSES = ("passed", "wrong", "rejected", "build_failed", "crashed", "timed_out")
_HEADER = re.compile(r"^(?:#|//) (\w+): (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Entry:
    """One candidate of a corpus, with what its header says."""

    path: Path
    catalogue: str
    problem: Path
    statuses: tuple[str, ...]
    finding: str | None
    devices: tuple[str, ...]
    timed: bool
    speeds: tuple[str, ...]
    twin: Path | None
    forbid_libraries: bool
    open_on: tuple[str, ...]
    because: str

    @property
    def honest(self) -> bool:
        return self.statuses == ("passed",) and not self.catalogue

    def problem_on(self, device_type: str) -> Path:
        """A GPU needs more work than a CPU to be timed at all."""
        larger = self.problem.with_stem(f"{self.problem.stem}_{device_type}")
        return larger if larger.exists() else self.problem


def read_entry(path: Path) -> Entry:
    """What the header of one file says."""
    header = dict(_HEADER.findall(path.read_text(encoding="utf-8")))
    if "problem" not in header:
        raise UserError(f"{path}: its header names no problem: add a line `# problem: NAME`")
    statuses = tuple(header.get("expect", "passed").split())
    if unknown := [status for status in statuses if status not in STATUSES]:
        raise UserError(f"{path}: expect: there is no status {unknown[0]!r}; use {', '.join(STATUSES)}")
    twin = header.get("twin")
    speeds = tuple(word.replace("_", " ") for word in header.get("speed", "").split())
    return Entry(
        path=path,
        catalogue=header.get("catalogue", ""),
        problem=_beside(path, "problems", header["problem"]),
        statuses=statuses,
        finding=header.get("finding"),
        devices=tuple(header.get("devices", "cpu cuda").split()),
        timed=header.get("gate") == "speed" or bool(speeds),
        speeds=speeds,
        twin=_beside(path, "honest", twin) if twin else None,
        forbid_libraries=header.get("rules") == "no_libraries",
        open_on=tuple(header.get("open", "").split()),
        because=header.get("because", ""),
    )


def _beside(path: Path, folder: str, name: str) -> Path:
    """NAME.py in a folder of that name beside the file, or above it."""
    for place in (path.parent / folder, *(above / folder for above in path.parents[1:4])):
        found = place / f"{name}.py"
        if found.exists():
            return found
    raise UserError(f"{path}: there is no {name}.py in a folder `{folder}` beside it or above it")


def read_folder(folder: Path) -> list[Entry]:
    """Every file with a header, in all folders below, sorted by name; problems are no entries."""
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder of candidates")
    paths = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in SUFFIXES and "problems" not in path.parts and not path.name.startswith("test_")
    )
    entries = [read_entry(path) for path in paths if _HEADER.search(path.read_text(encoding="utf-8"))]
    if not entries:
        raise UserError(f"{folder} has no file with a header such as `# problem: NAME`; see docs/redteam.md")
    return entries
