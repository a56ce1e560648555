"""Files written whole or not at all, and never over what they were made from."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from assay.records import UserError


def write_whole(path: Path, data: bytes, unlike: Sequence[Path]) -> None:
    """Replaces whatever was there, unless that is one of `unlike`."""
    if any(path.resolve() == other.resolve() for other in unlike):
        raise UserError(f"{path} is the run itself: name another file with --out")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(f"{path} cannot be written ({error.strerror}): name another with --out") from error
