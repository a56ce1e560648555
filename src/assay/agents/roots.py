"""Which files tools may name: those below the folders that whoever started the server has given.

Links are followed first, so that a link inside cannot lead outside. Not covered: what problem code does by
itself, which runs with the rights of the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.records import UserError


class Roots:
    """Folders that may be named; relative paths start at the first."""

    def __init__(self, folders: Sequence[Path]) -> None:
        for folder in folders:
            if not folder.is_dir():
                raise UserError(f"--root {folder}: no such folder: check the path")
        self.folders = tuple(folder.resolve() for folder in folders)

    def resolve(self, text: str) -> Path:
        """The file or folder that is meant, whether it exists or not."""
        try:
            path = (self.folders[0] / text).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise UserError(f"{text[:200]!r} is no path: {error}") from error
        if not any(path.is_relative_to(folder) for folder in self.folders):
            known = ", ".join(map(str, self.folders))
            raise UserError(f"{text[:200]} lies outside of {known}: start the server with another --root")
        return path
