"""The system calls that the standard library does not wrap, by ctypes: errors become OSError.

Not covered: machines other than x86-64 and aarch64. `NUMBERS` is None there, and the callers say so.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Final

MS_RDONLY: Final = 1
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_REMOUNT: Final = 32
MS_BIND: Final = 4096
MS_REC: Final = 16384
MS_PRIVATE: Final = 1 << 18

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUTS: Final = 0x04000000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000

PR_SET_PDEATHSIG: Final = 1
PR_SET_DUMPABLE: Final = 4
PR_CAPBSET_DROP: Final = 24
PR_SET_CHILD_SUBREAPER: Final = 36
PR_SET_NO_NEW_PRIVS: Final = 38
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_CLEAR_ALL: Final = 4

# Landlock is younger than the unification of the numbers: the same on every machine.
LANDLOCK_CREATE_RULESET: Final = 444
LANDLOCK_ADD_RULE: Final = 445
LANDLOCK_RESTRICT_SELF: Final = 446

_CAPABILITY_VERSION_3: Final = 0x20080522


@dataclass(frozen=True, slots=True)
class Numbers:
    """What differs between machines."""

    audit_arch: int
    """How a seccomp filter sees this machine."""
    column: int
    """The column of this machine in the tables of numbers."""
    seccomp: int
    capset: int


_MACHINES = {
    "x86_64": Numbers(audit_arch=0xC000003E, column=0, seccomp=317, capset=126),
    "aarch64": Numbers(audit_arch=0xC00000B7, column=1, seccomp=277, capset=91),
}
NUMBERS: Final = _MACHINES.get(os.uname().machine)

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long


def numbers_of(machine: str) -> Numbers | None:
    """The numbers of another machine than this one."""
    return _MACHINES.get(machine)


def _checked(result: int, what: str) -> int:
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def syscall(number: int, *arguments: int) -> int:
    """The raw call; pointers are passed as addresses."""
    converted = [ctypes.c_long(argument) for argument in arguments]
    return _checked(_LIBC.syscall(ctypes.c_long(number), *converted), f"syscall {number}")


def prctl(option: int, *arguments: int) -> int:
    """prctl(2), unused arguments zero as the newer options demand."""
    padded = (*arguments, 0, 0, 0, 0)[:4]
    converted = [ctypes.c_ulong(argument) for argument in padded]
    return _checked(_LIBC.prctl(ctypes.c_int(option), *converted), f"prctl {option}")


def unshare(flags: int) -> None:
    """unshare(2); `os.unshare` is only there from Python 3.12 on."""
    _checked(_LIBC.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """mount(2)."""
    result = _LIBC.mount(
        source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), options.encode()
    )
    _checked(result, f"mount {kind or 'bind'} on {target}")


def drop_capabilities() -> None:
    """Give up every capability of the calling thread, for good."""
    if NUMBERS is None:
        raise OSError(38, "capset: unknown machine")
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    empty = (ctypes.c_uint32 * 6)()
    syscall(NUMBERS.capset, ctypes.addressof(header), ctypes.addressof(empty))
