"""The processes of a run: who they are, what memory they hold, and how to end all of them.

A candidate may fork twice, start sessions and change its name; it cannot leave its user, its pid namespace or
(short of killing it) its subreaper. So a run is: everything under its user, and everything below its first
process.

Not covered: memory that no process maps (files in the scratch folder, memfd, System V segments), and a daemon
of a run that had neither a pid namespace nor a user of its own once the subreaper (P1) is gone: call
`kill_all` before.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import threading
import time
from dataclasses import dataclass

from assay.records.errors import JudgeFault

_PATIENCE_S = 10.0
_PAUSE_S = 0.002
_STOPPED_WITHIN_S, _STOPPED_WITHIN_CPU_S = 2.0, 0.2
_RESTED_WITHIN_S, _GLANCE_S = 0.02, 2e-5
_PROCESS_CLOCK = 2
"""CPUCLOCK_SCHED: the low bits of the number of a process's clock."""

# Assigned to nobody by systemd's table (UIDS-GIDS), above the ranges of containers and below the sign bit.
_UID_FIRST = 1_879_048_192
_UID_LAST = 2_147_483_646
# Where a container maps only the usual 65536: above people's, below systemd's dynamic users.
_UID_LOW_FIRST = 32_768
_UID_LOW_LAST = 61_183
_UID_FLOOR = 1000
_TRIES = 1000
# How getent ends.
_NAMED, _NAMELESS = 0, 2
# Hundreds of these are read at a time. Names cannot forge a line: newlines in them are escaped.
_STATUS = re.compile(
    rb"^State:\t(\S).*?^PPid:\t(\d+)$.*?^Uid:\t([\d\t]+)$(?:.*?^VmRSS:\s*(\d+) kB$)?.*?^Threads:\t(\d+)$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    uids: frozenset[int]
    """Real, effective, saved and file system user."""
    alive: bool
    """Not yet a zombie."""
    stopped: bool
    threads: int
    resident_bytes: int


def kill_all(pid: int, uid: int | None) -> None:
    """End the process, all below it and all of the user's; returns when none of them can run any more.

    Zombies count as ended: reaping is the parent's. Call it before `pid` is reaped, or the number may be
    another's.
    """
    if pid <= 1 or pid == os.getpid():
        raise JudgeFault(f"process {pid} is not a run's")
    if uid is not None and (uid < _UID_FLOOR or uid == os.geteuid()):
        raise JudgeFault(f"user {uid} is not a run's: ending all of its processes would end others")
    deadline = time.monotonic() + _PATIENCE_S
    # Stopped, it forks no more; its orphans still come to it, so it goes last.
    _signal(pid, signal.SIGSTOP)
    while rest := _members(pid, uid) - {pid}:
        if uid is not None and os.geteuid() == 0:
            _kill_user(uid)
        for other in rest:
            _signal(other, signal.SIGKILL)
        _pause(deadline, rest)
    while rest := _members(pid, uid):
        for other in rest:
            _signal(other, signal.SIGKILL)
        _pause(deadline, rest)


def kill_namespace(pid: int) -> None:
    """End a run whose first process is the first of a pid namespace: the kernel ends all others with it.

    One look at one process, where `kill_all` has to look through all of the machine's. Returns when it can
    run no more; by then none of the others can, since the first one's end waits for theirs.
    """
    deadline = time.monotonic() + _PATIENCE_S
    _signal(pid, signal.SIGKILL)
    while (process := _read(pid)) is not None and process.alive:
        _pause(deadline, {pid})


def companions(pid: int) -> set[int]:
    """Processes below the first one of a run that can run: neither ended nor stopped.

    In a pid namespace of its own orphans come to it, so whoever lives is below it.
    """
    found = _descendants(pid)
    return {n for n in found if (process := _read(n)) is not None and process.alive and not process.stopped}


def stand_still(pid: int) -> None:
    """Stop a process, and wait until it has stopped: a signal cuts nothing short that the system does for it.

    All its threads are looked at: what one runs may count as its time only when it stops. Whoever wakes
    itself is waited for no longer than a moment of its own time, which takes longer where processors are
    busy.
    """
    _signal(pid, signal.SIGSTOP)
    deadline, most_cpu_s = time.monotonic() + _STOPPED_WITHIN_S, cpu_s(pid) + _STOPPED_WITHIN_CPU_S
    for thread in _threads(pid):
        while _state(pid, thread) in b"RSD" and time.monotonic() < deadline and cpu_s(pid) < most_cpu_s:
            time.sleep(_GLANCE_S)


def rest(patience_s: float = _RESTED_WITHIN_S) -> None:
    """Wait until no other thread of this process runs: torch's spin for milliseconds after their work.

    One that has more to do is waited for no longer than this.
    """
    deadline = time.monotonic() + patience_s
    for thread in set(_threads(os.getpid())) - {str(threading.get_native_id())}:
        while _state(os.getpid(), thread) == b"R" and time.monotonic() < deadline:
            time.sleep(_GLANCE_S)


def cpu_s(pid: int) -> float:
    """Time that all threads of a process have run, by the clock that the kernel keeps for it; 0 if it has
    ended."""
    try:
        return time.clock_gettime((~pid << 3) | _PROCESS_CLOCK)
    except OSError:
        return 0.0


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return []


def _state(pid: int, thread: str) -> bytes:
    """Of a thread, as one letter; X if there is none."""
    try:
        with open(f"/proc/{pid}/task/{thread}/stat", "rb") as stat:
            return stat.read().rpartition(b") ")[2][:1]
    except (FileNotFoundError, ProcessLookupError):
        return b"X"


def namespace_bytes(pid: int) -> int:
    """`resident_bytes` of a run that has a pid namespace of its own: one look at each of its processes."""
    processes = [process for n in {pid} | _descendants(pid) if (process := _read(n)) is not None]
    return sum(process.resident_bytes for process in processes)


def _descendants(pid: int) -> set[int]:
    found: set[int] = set()
    todo = [pid]
    while todo:
        children = _children(todo.pop()) - found
        found |= children
        todo += children
    return found


def _children(pid: int) -> set[int]:
    """One file per thread, where walking through all of the machine's processes would take longer."""
    found: set[int] = set()
    for thread in _threads(pid):
        with (
            contextlib.suppress(FileNotFoundError, ProcessLookupError),  # the thread has ended
            open(f"/proc/{pid}/task/{thread}/children", "rb") as children,
        ):
            found |= {int(number) for number in children.read().split()}
    return found


def proportional_bytes(pid: int, uid: int | None) -> int:
    """The same with shared pages counted once: exact, but slow to read for a process with many mappings."""
    return sum(_proportional(number) for number in _run(pid, uid, _table()))


def resident_bytes(pid: int, uid: int | None) -> int:
    """Resident memory of all processes of the user, or of the process and all below it.

    Pages that forked processes share are counted once for each: never too little.
    """
    table = _table()
    return sum(table[number].resident_bytes for number in _run(pid, uid, table))


def _run(pid: int, uid: int | None, table: dict[int, _Process]) -> set[int]:
    if uid is None:
        return _below(pid, table)
    return {number for number, process in table.items() if uid in process.uids}


def _proportional(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:")), 0)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0  # gone, or no longer ours to read: the quick count has held it until now


def unused_uid() -> int | None:
    """A user number that nobody has and nothing runs under; None when only one's own user is to be had."""
    if os.geteuid() != 0:
        return None
    first, last = _mapped_range()
    taken = {uid for process in _table().values() for uid in process.uids}
    for _ in range(_TRIES if last > first else 0):
        uid = first + secrets.randbelow(last - first)
        if uid not in taken and not _has_name(uid):
            return uid
    return None


def tasks_of(uid: int) -> int:
    """Threads of all processes of this user that /proc shows."""
    return sum(process.threads for process in _table().values() if uid in process.uids)


def _mapped_range() -> tuple[int, int]:
    """The part of the high range that exists here; in a container perhaps another, lower one."""
    with open("/proc/self/uid_map", encoding="utf-8") as table:
        extents = [(int(line.split()[0]), int(line.split()[2])) for line in table]
    ranges = [(max(start, _UID_FIRST), min(start + count, _UID_LAST)) for start, count in extents]
    best = max(ranges, key=lambda pair: pair[1] - pair[0], default=(0, 0))
    if best[1] > best[0]:
        return best
    ranges = [(max(start, _UID_LOW_FIRST), min(start + count, _UID_LOW_LAST)) for start, count in extents]
    return max(ranges, key=lambda pair: pair[1] - pair[0], default=(0, 0))


def _has_name(uid: int) -> bool:
    """Asked in a process of its own: what looks names up is loaded there, and has crashed a judge once."""
    asked = subprocess.run(["getent", "passwd", str(uid)], stdout=subprocess.DEVNULL, check=False)
    if asked.returncode not in (_NAMED, _NAMELESS):
        raise JudgeFault(f"getent passwd ended with {asked.returncode}")
    return asked.returncode == _NAMED


def _read(pid: int) -> _Process | None:
    """From `status` alone: the owner of /proc/<pid> is no witness, a process can make that root's."""
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            text = status.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    found = _STATUS.search(text)
    if found is None:
        raise JudgeFault(f"/proc/{pid}/status is not as it should be")
    state, parent, uids, resident_kib, threads = found.groups()
    return _Process(
        parent=int(parent),
        uids=frozenset(int(uid) for uid in uids.split()),
        alive=state not in (b"Z", b"X"),
        stopped=state == b"T",
        threads=int(threads),
        resident_bytes=int(resident_kib or 0) * 1024,
    )


def _table() -> dict[int, _Process]:
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return {pid: process for pid in numbers if (process := _read(pid)) is not None}


def _below(pid: int, table: dict[int, _Process]) -> set[int]:
    """The process and its descendants."""
    children: dict[int, list[int]] = {}
    for number, process in table.items():
        children.setdefault(process.parent, []).append(number)
    found: set[int] = set()
    todo = [pid] if pid in table else []
    while todo:
        number = todo.pop()
        if number not in found:
            found.add(number)
            todo += children.get(number, [])
    return found


def _members(pid: int, uid: int | None) -> set[int]:
    """Living processes of the run."""
    table = _table()
    found = _below(pid, table)
    found |= {number for number, process in table.items() if uid is not None and uid in process.uids}
    return {number for number in found if table[number].alive} - {os.getpid()}


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _kill_user(uid: int) -> None:
    """kill(-1) as that user: one pass in the kernel that no fork can outrun, unlike a walk through /proc.

    By the shell and not by os.fork, because the judge may have threads.
    """
    subprocess.run(
        ["/bin/sh", "-c", "kill -9 -1"],
        user=uid,
        group=uid,
        extra_groups=[],
        env={},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        check=False,
    )


def _pause(deadline: float, rest: set[int]) -> None:
    if time.monotonic() > deadline:
        raise JudgeFault(f"processes {sorted(rest)[:8]} of a run do not end")
    time.sleep(_PAUSE_S)
