"""First step, in P1: new namespaces, each one on its own, so that a missing one does not lose the others.

P1 only waits afterwards. It is the subreaper of the run: orphans of the candidate become its children and
stay findable where there is no pid namespace. The next process that P1 forks (P2) is pid 1 of the new pid
namespace: the kernel drops signals with a default action that come from inside it (so abort() ends in
SIGSEGV), and orphans are P2's to reap. P1 itself can start no threads any more and must fork P2 only.

Not covered: cgroups, time namespaces, and unprivileged users where the host forbids user namespaces.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import struct
from dataclasses import dataclass

from assay.records.layers import Layer
from assay.sandbox import syscalls
from assay.sandbox.plan import Plan


@dataclass(slots=True)
class _Entered:
    """What this process (and, inherited over fork, its children) was moved into."""

    mounts_inode: int | None = None
    has_loopback: bool = False


# Module state because it must cross the fork from P1 to P2: mounting anything without being sure of a private
# mount namespace would change the host.
_entered = _Entered()
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1


def isolate(plan: Plan) -> list[Layer]:
    """Leave the judge's session and namespaces. Reports pid, network and IPC; `furnish` the mounts."""
    with contextlib.suppress(PermissionError):  # already the leader of a session
        os.setsid()
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    note = ""
    if os.geteuid() != 0:
        refused = _enter_user_namespace()
        note = f"; no user namespace: {refused}" if refused else "; by a user namespace"
    host_name = _try(syscalls.CLONE_NEWUTS)
    network = _try(syscalls.CLONE_NEWNET)
    reach = "no interface is up"
    if plan.loopback and not network:
        refused = _raise_loopback()
        _entered.has_loopback = not refused
        reach = f"no loopback: {refused}" if refused else "nothing but its own loopback"
    ipc = _try(syscalls.CLONE_NEWIPC)
    mounts = _enter_mount_namespace()
    processes = mounts or _rehearse_pid_namespace() or _try(syscalls.CLONE_NEWPID)
    own_name = "" if host_name else ", own host name"
    return [
        Layer("pid_namespace", not processes, (processes or "own processes, own /proc") + note),
        Layer("network_namespace", not network, (network or reach) + note),
        Layer("ipc_namespace", not ipc, (ipc or "own System V objects and queues" + own_name) + note),
    ]


def has_private_mounts() -> bool:
    """Is this process in the mount namespace that `isolate` made (and made private)?"""
    return _entered.mounts_inode is not None and _entered.mounts_inode == _mounts_inode()


def has_own_loopback() -> bool:
    """Is this process in a network namespace of its own whose loopback `isolate` brought up?"""
    return _entered.has_loopback


def _mounts_inode() -> int:
    return os.stat("/proc/self/ns/mnt").st_ino


def _try(flag: int) -> str:
    """Unshare one thing; empty, or why not."""
    try:
        syscalls.unshare(flag)
    except OSError as error:
        return str(error)
    return ""


def _raise_loopback() -> str:
    """Bring up the loopback of the network namespace just entered; empty, or why not."""
    wanted = struct.pack("16sh22x", b"lo", _IFF_UP)  # struct ifreq
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, wanted)
    except OSError as error:
        return str(error)
    return ""


def _enter_user_namespace() -> str:
    """Become privileged in an own user namespace, as the same user; empty, or why not."""
    uid, gid = os.getuid(), os.getgid()
    try:
        # The /proc files of a process that has changed its user belong to root until it is dumpable again,
        # and then it could not write its own maps.
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
        syscalls.unshare(syscalls.CLONE_NEWUSER)
        _write("/proc/self/setgroups", "deny")  # the kernel's condition for an unprivileged gid_map
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    except OSError as error:
        return str(error)
    return ""


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _enter_mount_namespace() -> str:
    """An own mount table from which nothing spreads back; empty, or why not."""
    host = _mounts_inode()
    try:
        syscalls.unshare(syscalls.CLONE_NEWNS)
        mine = _mounts_inode()
        if mine == host:  # believed only when seen: the next call would change the host
            return "the kernel gave no new mount namespace"
        syscalls.mount("none", "/", "", syscalls.MS_REC | syscalls.MS_PRIVATE)
    except OSError as error:
        return str(error)
    _entered.mounts_inode = mine
    return ""


def _rehearse_pid_namespace() -> str:
    """Can /proc be mounted in a new pid namespace? Empty, or why not.

    A pid namespace that shows the /proc of another one is worse than none: CUDA does not start in it.
    Containers often allow the one and forbid the other, and once P1 has unshared there is no way back, so try
    it in a child.
    """
    child = os.fork()
    if child == 0:
        code = 255
        try:
            code = _mount_proc_in_grandchild()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == 0:
        return ""
    reason = os.strerror(code) if 0 < code < 255 else f"the rehearsal ended with {code}"
    return f"no /proc in a new pid namespace: {reason}"


def _mount_proc_in_grandchild() -> int:
    """Zero or an errno."""
    try:
        syscalls.unshare(syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID)
    except OSError as error:
        return error.errno or 255
    child = os.fork()
    if child == 0:
        code = 255
        try:
            mount_proc()
            code = 0
        except OSError as error:
            code = error.errno or 255
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF


def mount_proc() -> None:
    """A /proc that shows the calling process's own pid namespace."""
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("proc", "/proc", "proc", flags)
