"""The daemon's end of its socket: taken once, removed at the end.

A lock beside the socket says whether a daemon lives: the kernel drops it with its owner, so a socket without
a lock is left over and may go. The empty lock file stays; removing it would race with the next daemon.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from pathlib import Path

from assay.records.errors import UserError


class Door:
    """A bound socket of mode 0600 that nobody else listens on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_fd = _take_lock(path)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _remove_stale(path)
            self._bind()
        except UserError:
            self.listener.close()
            self.release()
            raise

    def _bind(self) -> None:
        # By umask and not by chmod: there must be no moment at which others may connect.
        before = os.umask(0o177)
        try:
            self.listener.bind(str(self.path))
        except OSError as error:
            raise UserError(f"cannot listen at {self.path}: {error.strerror or error}") from error
        finally:
            os.umask(before)

    def close(self) -> None:
        """Remove the socket and let nobody else in; may be called again."""
        if self.listener.fileno() < 0:
            return
        self.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # never listened
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept(), which close() does not
        self.listener.close()

    def release(self) -> None:
        """Let the next daemon come."""
        os.close(self._lock_fd)


def _take_lock(path: Path) -> int:
    lock = path.with_name(path.name + ".lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise UserError(f"cannot write {lock}: {error.strerror}; name another place with --socket") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise UserError(
            f"a judge daemon is already running at {path}: stop it with `assay serve-judge --stop`"
        ) from error
    return descriptor


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise UserError(f"{path} is there and no socket: remove it or name another place with --socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise UserError(f"cannot tell who is at {path}: {error.strerror or error}") from error
    raise UserError(f"something else listens at {path}: name another place with --socket")
