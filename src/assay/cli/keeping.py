"""Records on disk: one JSON file each, under a name that sorts by time."""

from __future__ import annotations

import datetime
import tempfile
from pathlib import Path

from assay.records import Ladder, RedteamMatrix, UserError, Verdict, to_json


def record_folder(path: str) -> Path:
    """Made before anything is judged: a verdict must not be lost for want of a place."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return Path(path)
    except OSError as error:
        raise UserError(f"cannot write records to {path}: {error.strerror}; choose --records") from error


def keep_record(record: Verdict | Ladder | RedteamMatrix, folder: Path, label: str) -> Path:
    """Write a record; `label` ends its name."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S.%f")
    path = folder / f"{stamp}-{label}.json"
    path.write_text(to_json(record, indent=1) + "\n")
    return path
