"""What a candidate's compilers left behind, carried from one of its processes to the next.

Triton and inductor compile on the first call. A second process of the same candidate, judged in the same
breath, is given the first one's cache, so that a fresh process does not mean a fresh compilation. The bytes
come from the candidate and go to the same candidate alone: whatever they hold, it could have done itself.

Inductor writes the path of its folder into what it keeps. All scratch folders have paths of one length, so
the old path is replaced by the new one in place, in text and binaries alike.

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
    origin = str(scratch).encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in files:
            archive.add(path, path.relative_to(scratch), recursive=False)
    return len(origin).to_bytes(2, "big") + origin + buffer.getvalue()


def unpack(payload: bytes, scratch: Path) -> None:
    """Runs in the confined child, so an archive that climbs out of the folder finds nothing to write to."""
    start = 2 + int.from_bytes(payload[:2], "big")
    origin, here = payload[2:start], str(scratch).encode()
    if not payload or len(origin) != len(here):
        return
    with tarfile.open(fileobj=io.BytesIO(payload[start:].replace(origin, here))) as archive:
        archive.extractall(scratch, filter="data")
    for name in FOLDERS:
        os.makedirs(scratch / name, exist_ok=True)
