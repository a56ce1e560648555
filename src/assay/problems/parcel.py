"""A problem as text, to be read on another machine: its files, laid out as they lie here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from assay.problems.problem import Problem


@dataclass(frozen=True, slots=True)
class Parcel:
    """Files by relative path, and which of them (or of their folders) is the problem."""

    path: str
    files: dict[str, str]
    digest: str

    def unpack(self, folder: Path) -> Path:
        """Where the problem is, below `folder`."""
        place = folder / self.digest
        for name, text in self.files.items():
            file = place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return place / self.path


def pack(problem: Problem) -> Parcel:
    """Everything that defines the problem; the folder it lies in keeps its name, which may tell the level."""
    root = Path(os.path.commonpath([str(Path(name).parent) for name in problem.files])).parent
    files = {str(Path(name).relative_to(root)): text for name, text in problem.files.items()}
    return Parcel(str(Path(problem.path).resolve().relative_to(root)), files, problem.digest)
