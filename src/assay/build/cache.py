"""Keeps build results by key, errors included: the same broken source is never compiled twice.

An entry is `<key>.json` (what happened) and, for a success, `<key>.bin` (the artefact, written first). Both
are written by rename, so that a reader sees a whole entry or none. A truncated or altered entry
counts as absent. Locks are `flock`, which the kernel drops with its owner: torch's own lock *file* outlives
a killed builder and blocks every later one (pytorch #189245). The empty lock files stay; removing them races.

Not covered: eviction; failures that depend on the machine's load (time-outs, out of memory) are not kept.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.records.errors import CandidateFailure, JudgeFault

SCHEMA = 1
KINDS = ("cubin", "shared", "extension", "inline")
TRANSIENT_CODES = frozenset({"timed_out", "compiler_killed", "out_of_memory"})
_KEY = re.compile(r"[0-9a-f]{16,128}")


@dataclass(frozen=True, slots=True)
class CachedBuild:
    """A build that happened before: an artefact, or the failure it ended in."""

    kind: str | None
    artefact: bytes | None
    log: str
    seconds: float
    failure: tuple[str, str, str] | None
    """code, message, detail; None for a success."""

    def raise_failure(self) -> None:
        """Raises the recorded failure, if the build failed."""
        if self.failure is not None:
            code, message, detail = self.failure
            raise CandidateFailure("build_failed", code, message, detail)


class BuildCache:
    """A folder of build results; any number of processes may share it."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    def get(self, key: str) -> CachedBuild | None:
        """The entry, checked against its checksum; None if there is none or it is damaged."""
        record_path, artefact_path, _ = self._paths(key)
        try:
            record = json.loads(record_path.read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        entry = _decode(record, key)
        if entry is None or entry.failure is not None:
            return entry
        try:
            artefact = artefact_path.read_bytes()
        except FileNotFoundError:
            return None
        if hashlib.sha256(artefact).hexdigest() != record.get("sha256"):
            return None
        return CachedBuild(entry.kind, artefact, entry.log, entry.seconds, None)

    def put_success(self, key: str, kind: str, artefact: bytes, log: str, seconds: float) -> None:
        if kind not in KINDS:
            raise JudgeFault(f"unknown kind of artefact {kind!r}")
        record_path, artefact_path, _ = self._paths(key)
        digest = hashlib.sha256(artefact).hexdigest()
        # The artefact first: alone it reads as absent, while a record alone would read as damaged.
        _write_atomically(artefact_path, artefact)
        record = {"kind": kind, "sha256": digest, "log": log, "seconds": seconds, "failure": None}
        _write_record(record_path, key, record)

    def put_failure(self, key: str, code: str, message: str, detail: str) -> None:
        """Keeps a failure; one that another try could avoid (see TRANSIENT_CODES) is not kept."""
        if code in TRANSIENT_CODES:
            return
        record_path, _, _ = self._paths(key)
        failure = [code, message, detail]
        _write_record(record_path, key, {"kind": None, "log": "", "seconds": 0.0, "failure": failure})

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """One builder per key: `with cache.locked(key): cache.get(key) or build and put`."""
        _, _, lock_path = self._paths(key)
        lock_path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            # Explicit: a process forked meanwhile holds a copy of the descriptor, and closing ours alone
            # would leave the lock with it.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def _paths(self, key: str) -> tuple[Path, Path, Path]:
        if not _KEY.fullmatch(key):
            raise JudgeFault(f"not a build key: {key!r}")
        folder = self.root / key[:2]
        return folder / f"{key}.json", folder / f"{key}.bin", folder / f"{key}.lock"


def _decode(record: Any, key: str) -> CachedBuild | None:
    """The record without its artefact, or None if anything about it is not as written by us."""
    if not isinstance(record, dict) or record.get("schema") != SCHEMA or record.get("key") != key:
        return None
    log, seconds, failure = record.get("log"), record.get("seconds"), record.get("failure")
    if not isinstance(log, str) or not isinstance(seconds, int | float):
        return None
    if failure is None:
        return (
            CachedBuild(record["kind"], None, log, float(seconds), None)
            if record.get("kind") in KINDS
            else None
        )
    if not isinstance(failure, list) or len(failure) != 3 or not all(isinstance(f, str) for f in failure):
        return None
    return CachedBuild(None, None, log, float(seconds), (failure[0], failure[1], failure[2]))


def _write_record(path: Path, key: str, record: dict[str, Any]) -> None:
    _write_atomically(path, json.dumps({"schema": SCHEMA, "key": key, **record}).encode())


def _write_atomically(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".partial-")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)  # gone already unless the write or the rename failed
