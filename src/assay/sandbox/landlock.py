"""Landlock: which files the process may touch, no TCP, no signals and abstract sockets to the outside.

Handles every right that the running kernel knows, up to ABI 8. A right that no rule grants is denied, and it
is denied for root too. Also closes ptrace and /proc/<pid>/mem of processes outside (the kernel does that for
any domain).

Not covered: threads that exist already, before ABI 8 (they stay outside; the layer's detail counts them);
metadata (stat, chmod, chown, utime are not Landlock's); UDP and sockets in the file system, which the seccomp
filter denies.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from assay.records.layers import Layer
from assay.sandbox import syscalls

_EXECUTE: Final = 1 << 0
_WRITE_FILE: Final = 1 << 1
_READ_FILE: Final = 1 << 2
_READ_DIR: Final = 1 << 3
_MAKE_CHAR: Final = 1 << 6
_MAKE_BLOCK: Final = 1 << 11
_TRUNCATE: Final = 1 << 14
_IOCTL_DEV: Final = 1 << 15

_FILE_RIGHTS: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
"""All that a rule on a single file may grant; the kernel refuses the others there."""

LIST: Final = _READ_DIR
READ: Final = _EXECUTE | _READ_FILE | _READ_DIR
DEVICE: Final = _READ_FILE | _WRITE_FILE | _READ_DIR | _TRUNCATE | _IOCTL_DEV
PROC: Final = _READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE
EVERYTHING: Final = (1 << 16) - 1 - _MAKE_CHAR - _MAKE_BLOCK

_NET_BOTH: Final = 0b11  # bind and connect
_SCOPE_BOTH: Final = 0b11  # abstract sockets and signals
_VERSION: Final = 1
_RULE_PATH_BENEATH: Final = 1
_RESTRICT_ALL_THREADS: Final = 1 << 3


class Grant(NamedTuple):
    """Rights on a path and all below it."""

    path: str
    rights: int


def abi() -> int:
    """The version the running kernel speaks; 0 where it does not (absent, or switched off at boot)."""
    try:
        return syscalls.syscall(syscalls.LANDLOCK_CREATE_RULESET, 0, 0, _VERSION)
    except OSError:
        return 0


def handled_files(version: int) -> int:
    """Every file right that this ABI knows."""
    bits = 13 if version < 2 else 14 if version < 3 else 15 if version < 5 else 16
    return (1 << bits) - 1


def _ruleset_attributes(version: int, *, deny_tcp: bool) -> bytes:
    """struct landlock_ruleset_attr, as long as this ABI knows it."""
    fields = [handled_files(version)]
    if version >= 4:
        fields.append(_NET_BOTH if deny_tcp else 0)
    if version >= 6:
        fields.append(_SCOPE_BOTH)
    return struct.pack(f"={len(fields)}Q", *fields)


def restrict(grants: Iterable[Grant], *, deny_tcp: bool = True) -> Layer:
    """Confine the calling thread and all it starts from now on to these grants, for good."""
    version = abi()
    if version == 0:
        return Layer("landlock", False, "the kernel has no Landlock, or it is off")
    attributes = ctypes.create_string_buffer(_ruleset_attributes(version, deny_tcp=deny_tcp))
    address, size = ctypes.addressof(attributes), len(attributes) - 1
    ruleset = syscalls.syscall(syscalls.LANDLOCK_CREATE_RULESET, address, size, 0)
    try:
        skipped = sum(not _add(ruleset, grant, version) for grant in grants)
        covered = _enforce(ruleset, version)
    except OSError as error:
        return Layer("landlock", False, str(error))
    finally:
        os.close(ruleset)
    detail = f"ABI {version}: files{', TCP' * (version >= 4 and deny_tcp)}"
    detail += ", signals, abstract sockets" * (version >= 6)
    if skipped:
        detail += f"; {skipped} of the paths out of reach"
    older = len(os.listdir("/proc/self/task")) - 1
    if older and not covered:
        detail += f"; {older} threads started before stay outside"
    return Layer("landlock", True, detail)


def _add(ruleset: int, grant: Grant, version: int) -> bool:
    """False where the path is not there, or not for this user: then there is nothing to grant."""
    try:
        descriptor = os.open(grant.path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError, NotADirectoryError):
        return False
    try:
        rights = grant.rights & handled_files(version)
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FILE_RIGHTS
        if rights:
            rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, descriptor))
            address = ctypes.addressof(rule)
            syscalls.syscall(syscalls.LANDLOCK_ADD_RULE, ruleset, _RULE_PATH_BENEATH, address, 0)
    finally:
        os.close(descriptor)
    return True


def _enforce(ruleset: int, version: int) -> bool:
    """True if older threads are covered too."""
    if version >= 8:
        try:
            syscalls.syscall(syscalls.LANDLOCK_RESTRICT_SELF, ruleset, _RESTRICT_ALL_THREADS)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        else:
            return True
    syscalls.syscall(syscalls.LANDLOCK_RESTRICT_SELF, ruleset, 0)
    return False
