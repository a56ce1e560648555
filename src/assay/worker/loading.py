"""How a process comes to hold a candidate: what was built for it put in place, then imported or opened.

Not covered: confinement, and whose fault it is where this fails (entry.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.candidates import Candidate
from assay.worker.entry import load_entry
from assay.worker.entry_types import Entry
from assay.worker.inline_builds import InlineBuilds


def load_candidate(
    candidate: Candidate, head: Mapping[str, Any], payload: bytes, folder: Path
) -> tuple[Entry, InlineBuilds]:
    """Load it in a folder of its own, made here.

    Args:
        head: argument_names, support_files and built_name, which is empty for what is not compiled ahead.
        payload: its artefact, or what an earlier run of it built while it was imported.
    """
    folder.mkdir()
    built_path = None
    if head["built_name"]:
        built_path = str(folder / head["built_name"])
        Path(built_path).write_bytes(payload)
    builds = InlineBuilds(folder / "inline")
    builds.unpack(b"" if built_path else payload)
    builds.install()
    names = tuple(head["argument_names"])
    return load_entry(candidate, built_path, names, head["support_files"], folder), builds
