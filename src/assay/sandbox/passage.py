"""A way to paths below a folder that the child's user may not enter, such as Python below /root (0700).

The needed paths are opened first; then an empty tmpfs that everyone may enter covers the closed folder, and
the needed paths are bound back, read-only, at the same place. The rest of the folder is thereby hidden.

Not covered: access control lists (only mode bits are read), a closed root folder, and links inside the bound
folders that lead out of them.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field

from assay.sandbox import syscalls

_LINKS_MOST = 40


@dataclass(slots=True)
class Cover:
    """One closed folder, what has to be reachable below it, and the links on the way."""

    folder: str
    needed: dict[str, int] = field(default_factory=dict)
    """Real path to the descriptor that holds it while it is covered."""
    links: dict[str, str] = field(default_factory=dict)


def resolve(path: str) -> tuple[str, dict[str, str]]:
    """The real path, and every symbolic link met on the way with its target."""
    links: dict[str, str] = {}
    here = "/"
    todo = [part for part in os.path.abspath(path).split("/") if part]
    while todo:
        part = todo.pop(0)
        if part == "..":
            here = os.path.dirname(here)
            continue
        step = os.path.join(here, part)
        try:
            target = os.readlink(step)
        except OSError:  # no link, or not there: either way nothing to follow
            here = step
            continue
        links[step] = target
        if len(links) > _LINKS_MOST:
            raise OSError(errno.ELOOP, f"too many links: {path}")
        todo = [piece for piece in target.split("/") if piece not in ("", ".")] + todo
        here = "/" if target.startswith("/") else here
    return here, links


def closed_folder(path: str, uid: int) -> str | None:
    """The topmost folder above the real `path` that this user may not enter."""
    folder = ""
    for part in path.split("/")[1:-1]:
        folder = f"{folder}/{part}"
        try:
            entry = os.stat(folder)
        except FileNotFoundError:
            return None
        if not _may_enter(entry, uid):
            return folder
    return None


def _may_enter(entry: os.stat_result, uid: int) -> bool:
    if entry.st_uid == uid:
        return bool(entry.st_mode & stat.S_IXUSR)
    if entry.st_gid == uid:  # the child's group has the number of its user
        return bool(entry.st_mode & stat.S_IXGRP)
    return bool(entry.st_mode & stat.S_IXOTH)


def survey(paths: Iterable[str], uid: int) -> list[Cover]:
    """Which folders have to be covered; the needed paths below them are held open."""
    covers: dict[str, Cover] = {}
    for path in paths:
        real, links = resolve(path)
        for place in (real, *links):
            folder = closed_folder(place, uid)
            if folder is None:
                continue
            cover = covers.setdefault(folder, Cover(folder))
            if place in links:
                cover.links[place] = links[place]
            elif os.path.exists(real) and real not in cover.needed:
                cover.needed[real] = os.open(real, os.O_PATH | os.O_CLOEXEC)
    return list(covers.values())


def open_passage(cover: Cover, scratch: str) -> None:
    """Cover the folder and bring the needed paths back. The scratch folder is only made, for its tmpfs."""
    before = os.umask(0o022)
    try:
        syscalls.mount(
            "assay-cover", cover.folder, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "size=4m,mode=0755"
        )
        for place in sorted(cover.needed):  # parents before what lies in them
            if place == scratch:
                os.makedirs(place, exist_ok=True)
            elif not os.path.exists(place):  # else a parent has brought it back already
                _bind(cover.needed[place], place)
        for place, target in cover.links.items():
            if not os.path.lexists(place):
                os.makedirs(os.path.dirname(place), exist_ok=True)
                os.symlink(target, place)
    finally:
        os.umask(before)
        for descriptor in cover.needed.values():
            os.close(descriptor)


def _bind(descriptor: int, place: str) -> None:
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.mkdir(place)
    else:
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    syscalls.mount(f"/proc/self/fd/{descriptor}", place, "", syscalls.MS_BIND | syscalls.MS_REC)
    # The read-only flag is ignored by the binding call itself: it takes a second one.
    read_only = syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY | syscalls.MS_NOSUID
    syscalls.mount("none", place, "", read_only)
