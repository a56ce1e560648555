"""What a candidate's compilers left behind, carried from one of its processes to the next.

Triton and inductor compile on the first call. A second process of the same candidate, judged in the same
breath, is given the first one's cache, so that a fresh process does not mean a fresh compilation. The bytes
come from the candidate and go to the same candidate alone: whatever they hold, it could have done itself.

Not covered: caches kept anywhere but in the folders the environment names.
"""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

FOLDERS = ("triton", "inductor")
MOST_BYTES = 128 << 20


def pack(scratch: Path) -> bytes:
    """The cache folders as one archive; empty if they hold nothing, or too much to be worth it."""
    files = [path for name in FOLDERS for path in sorted((scratch / name).rglob("*")) if path.is_file()]
    if not files or sum(path.stat().st_size for path in files) > MOST_BYTES:
        return b""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in files:
            archive.add(path, path.relative_to(scratch), recursive=False)
    return buffer.getvalue()


def unpack(payload: bytes, scratch: Path) -> None:
    """Runs in the confined child, so an archive that climbs out of the folder finds nothing to write to."""
    if not payload:
        return
    with tarfile.open(fileobj=io.BytesIO(payload)) as archive:
        archive.extractall(scratch, filter="data")
    for name in FOLDERS:
        os.makedirs(scratch / name, exist_ok=True)
