"""The build cache: hits, recorded errors, damage, and two processes racing for one key."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from assay.build import BuildCache
from assay.records.errors import CandidateFailure, JudgeFault

KEY = "ab" * 32


def test_hit(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    assert cache.get(KEY) is None
    cache.put_success(KEY, "cubin", b"\x7fELF", "12 registers", 0.05)
    found = BuildCache(tmp_path).get(KEY)
    assert found is not None and found.failure is None
    assert (found.kind, found.artefact, found.log, found.seconds) == (
        "cubin",
        b"\x7fELF",
        "12 registers",
        0.05,
    )
    found.raise_failure()


def test_error_hit(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    cache.put_failure(KEY, "compile_error", "no such thing", "line 3")
    found = cache.get(KEY)
    assert found is not None and found.artefact is None
    with pytest.raises(CandidateFailure) as caught:
        found.raise_failure()
    assert (caught.value.status, caught.value.code, caught.value.detail) == (
        "build_failed",
        "compile_error",
        "line 3",
    )


@pytest.mark.parametrize("code", ["timed_out", "compiler_killed"])
def test_transient_failures_are_not_kept(tmp_path: Path, code: str) -> None:
    cache = BuildCache(tmp_path)
    cache.put_failure(KEY, code, "slow machine", "")
    assert cache.get(KEY) is None


def _files(root: Path, suffix: str) -> list[Path]:
    return [p for p in root.rglob("*") if p.suffix == suffix]


@pytest.mark.parametrize(
    "damage", ["truncate json", "other json", "bad text", "truncate bin", "no bin", "other key"]
)
def test_damage_counts_as_absent(tmp_path: Path, damage: str) -> None:
    cache = BuildCache(tmp_path)
    cache.put_success(KEY, "shared", b"12345678", "", 1.0)
    (record,), (artefact,) = _files(tmp_path, ".json"), _files(tmp_path, ".bin")
    if damage == "truncate json":
        record.write_bytes(record.read_bytes()[:-5])
    elif damage == "other json":
        record.write_text("[1, 2]")
    elif damage == "bad text":
        record.write_bytes(b"\xff\xfe{")
    elif damage == "truncate bin":
        artefact.write_bytes(b"1234")
    elif damage == "no bin":
        artefact.unlink()
    else:
        record.write_text(record.read_text().replace(KEY, "cd" * 32))
    assert cache.get(KEY) is None
    cache.put_success(KEY, "shared", b"again", "", 1.0)
    found = cache.get(KEY)
    assert found is not None and found.artefact == b"again"


def test_no_partial_files_stay(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    cache.put_success(KEY, "shared", b"x", "", 1.0)
    cache.put_failure(KEY, "compile_error", "m", "d")
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == [f"{KEY}.bin", f"{KEY}.json"]


def test_keys_and_kinds_are_checked(tmp_path: Path) -> None:
    with pytest.raises(JudgeFault):
        BuildCache(tmp_path).get("../../etc/passwd")
    with pytest.raises(JudgeFault):
        BuildCache(tmp_path).put_success(KEY, "exe", b"", "", 0.0)


def _build_once(root: str, log: str) -> None:
    cache = BuildCache(Path(root))
    with cache.locked(KEY):
        if cache.get(KEY) is None:
            with open(log, "a", encoding="utf-8") as stream:
                stream.write("built\n")
            time.sleep(0.3)  # long enough for the other process to arrive
            cache.put_success(KEY, "shared", b"x", "", 0.3)


def test_two_processes_build_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    context = multiprocessing.get_context("fork")
    racers = [context.Process(target=_build_once, args=(str(tmp_path / "c"), str(log))) for _ in range(3)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(30)
        assert racer.exitcode == 0
    assert log.read_text() == "built\n"


def _hold(root: str, ready: str) -> None:
    with BuildCache(Path(root)).locked(KEY):
        Path(ready).touch()
        time.sleep(60)


def test_lock_dies_with_its_owner(tmp_path: Path) -> None:
    """The reason for flock: torch's lock file would block for ever here."""
    ready = tmp_path / "ready"
    holder = multiprocessing.get_context("fork").Process(target=_hold, args=(str(tmp_path / "c"), str(ready)))
    holder.start()
    deadline = time.monotonic() + 60
    while not ready.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    holder.join(60)
    with BuildCache(tmp_path / "c").locked(KEY):
        assert not holder.is_alive()
