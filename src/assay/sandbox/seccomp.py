"""seccomp: no calls that reach into other processes, change the machine or widen the kernel's surface.

A deny list, not an allow list: the CUDA driver, compilers and Python use too many calls to name them, and a
missing one would look like a wrong candidate. Denied calls return EPERM; `clone3` returns ENOSYS, so that
glibc falls back to `clone`, whose flags a filter can read. A call made for another machine (32-bit, x32)
kills the process.

Sockets: no `socket` at all, AF_UNIX included, because Landlock does not govern sockets in the file system;
nothing in libc needs them (name services fall back to files, interface lists come back empty). `socketpair`
stays for AF_UNIX.

Not covered: ioctls of the allowed devices, the driver's own bugs, and memory from memfd_create.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from typing import Final, NamedTuple

from assay.records.errors import JudgeFault
from assay.records.layers import Layer
from assay.sandbox import syscalls

AF_UNIX: Final = 1
NEW_NAMESPACES: Final = 0x7E020000
"""All CLONE_NEW* flags but NEWTIME, whose bit is part of the exit signal in `clone`."""

_X32: Final = 0x40000000

# name: (x86-64, aarch64); None where the machine has no such call.
DENIED: Final[dict[str, tuple[int, int | None]]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    # Memory that no process maps: nothing would count it.
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "perf_event_open": (298, 241),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "setns": (308, 268),
    "unshare": (272, 97),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "settimeofday": (164, 170),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "acct": (163, 89),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "socket": (41, 198),
}
_CLONE: Final = (56, 220)
_CLONE3: Final = (435, 435)
_SOCKETPAIR: Final = (53, 199)

_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_IF_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_IF_AT_LEAST: Final = 0x35
_IF_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06

_OFFSET_NUMBER: Final = 0
_OFFSET_ARCH: Final = 4
_OFFSET_FIRST_ARGUMENT: Final = 16  # its low half; both machines are little-endian

_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_KILL_PROCESS: Final = 0x80000000

_SET_MODE_FILTER: Final = 1
_ALL_THREADS: Final = 1
_ALLOW_SPECULATION: Final = 4


class Instruction(NamedTuple):
    """One instruction of classic BPF."""

    code: int
    if_true: int
    if_false: int
    operand: int


class _Line(NamedTuple):
    """An instruction whose jumps still name labels; an empty label is the next line."""

    code: int
    operand: int
    if_true: str = ""
    if_false: str = ""


def program(numbers: syscalls.Numbers) -> list[Instruction]:
    """The filter for one machine."""
    column = numbers.column
    lines = [
        _Line(_LOAD, _OFFSET_ARCH),
        _Line(_IF_EQUAL, numbers.audit_arch, "", "kill"),
        _Line(_LOAD, _OFFSET_NUMBER),
    ]
    if column == 0:
        lines.append(_Line(_IF_AT_LEAST, _X32, "kill"))
    lines += [
        _Line(_IF_EQUAL, _CLONE[column], "clone"),
        _Line(_IF_EQUAL, _CLONE3[column], "absent"),
        _Line(_IF_EQUAL, _SOCKETPAIR[column], "socketpair"),
    ]
    denied = [numbers_of[column] for numbers_of in DENIED.values()]
    lines += [_Line(_IF_EQUAL, number, "deny") for number in denied if number is not None]
    blocks = {
        "allow": [_Line(_RETURN, _ALLOW)],
        "clone": [_Line(_LOAD, _OFFSET_FIRST_ARGUMENT), _Line(_IF_ANY_BIT, NEW_NAMESPACES, "deny", "permit")],
        "socketpair": [_Line(_LOAD, _OFFSET_FIRST_ARGUMENT), _Line(_IF_EQUAL, AF_UNIX, "permit", "deny")],
        # A second way to allow: jumps only go forward.
        "permit": [_Line(_RETURN, _ALLOW)],
        "deny": [_Line(_RETURN, _ERRNO | errno.EPERM)],
        "absent": [_Line(_RETURN, _ERRNO | errno.ENOSYS)],
        "kill": [_Line(_RETURN, _KILL_PROCESS)],
    }
    return _assemble(lines, blocks)


def _assemble(lines: list[_Line], blocks: dict[str, list[_Line]]) -> list[Instruction]:
    places: dict[str, int] = {}
    flat = list(lines)
    for label, block in blocks.items():
        places[label] = len(flat)
        flat += block
    code = []
    for index, line in enumerate(flat):
        jumps = [places[label] - index - 1 if label else 0 for label in (line.if_true, line.if_false)]
        if not all(0 <= jump <= 255 for jump in jumps):
            raise JudgeFault("a jump of the seccomp filter does not fit into one byte")
        code.append(Instruction(line.code, jumps[0], jumps[1], line.operand))
    return code


def install() -> Layer:
    """Put the filter on every thread of this process, for good. Needs no_new_privs."""
    numbers = syscalls.NUMBERS
    if numbers is None:
        return Layer("seccomp", False, "no filter for this machine")
    code = program(numbers)
    packed = b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
    body = ctypes.create_string_buffer(packed)
    # struct sock_fprog: a count, padding, and a pointer.
    header = ctypes.create_string_buffer(struct.pack("@HP", len(code), ctypes.addressof(body)))
    # Before Linux 5.16 a filter also slows the process by switching speculation off, which would falsify
    # timings.
    flags = _ALL_THREADS | _ALLOW_SPECULATION
    try:
        stuck = syscalls.syscall(numbers.seccomp, _SET_MODE_FILTER, flags, ctypes.addressof(header))
    except OSError as error:
        return Layer("seccomp", False, str(error))
    if stuck:
        return Layer("seccomp", False, f"thread {stuck} has a filter of its own")
    return Layer("seccomp", True, f"{len(DENIED)} calls denied, on all threads")
