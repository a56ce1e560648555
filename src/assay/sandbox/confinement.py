"""Last step, in P2: limits, another user, no privileges, Landlock, seccomp. There is no way back.

A process that uses CUDA takes the two halves apart: `restrict`, then the CUDA context, then `seal`. Landlock
(below ABI 8) binds only the calling thread and those it starts, so it comes before the driver's threads,
which share the candidate's memory; the driver starts under it and as another user (seen with driver 580). The
filter binds every thread, and cuInit fails with error 304 where it may not make a socket, so it comes after.

Not covered: open descriptors. Whatever the child holds open it can use: close what it must not have.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys

from assay.records.errors import JudgeFault
from assay.records.layers import Layer
from assay.sandbox import landlock, seccomp, syscalls
from assay.sandbox.landlock import Grant
from assay.sandbox.mounts import SHARED_MEMORY_FOLDER, has_private_shared_memory
from assay.sandbox.namespaces import has_own_loopback
from assay.sandbox.plan import Limits, Plan
from assay.sandbox.processes import tasks_of

_CAPABILITIES_MOST = 64


def confine(plan: Plan) -> list[Layer]:
    """Both halves at once, for a process that needs nothing in between."""
    return restrict(plan) + seal()


def restrict(plan: Plan) -> list[Layer]:
    """Give up all that the plan does not grant, but for system calls. Reports user, Landlock and limits."""
    _offer_to_oom_killer()
    limits = _limit(plan.limits, plan.uid)
    user = _become(plan.uid)
    # A process that has changed its user is not dumpable, and then its files in /proc belong to root: the
    # CUDA driver could not write /proc/self/task/<tid>/comm of the threads it starts later and fails with
    # error 304. What not being dumpable protects from (ptrace and /proc/<pid>/mem by the same user) is only
    # the run itself here.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    # After the change of user, which clears it.
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    # What reaches nothing but its own loopback needs no second bar; without that loopback the bar stays.
    return [user, landlock.restrict(_grants(plan), deny_tcp=not has_own_loopback()), limits]


def seal() -> list[Layer]:
    """Filter the system calls of every thread, those of the driver included. Reports seccomp."""
    return [seccomp.install()]


def _offer_to_oom_killer() -> None:
    """Let the kernel take this process first; written while privileged, it cannot be lowered again."""
    # UTF-8 here and below: any other codec would be imported now, from where the child may not read any more.
    with (
        contextlib.suppress(PermissionError),
        open("/proc/self/oom_score_adj", "w", encoding="utf-8") as score,
    ):
        score.write("1000")


def _limit(limits: Limits, uid: int | None) -> Layer:
    processes = limits.processes
    detail = f"{processes} processes and threads"
    exempt = uid is None and os.getuid() == 0
    if uid is None or os.geteuid() != 0:
        # The kernel counts per user: what the judge's own user runs already must not use up the candidate's
        # share.
        processes += tasks_of(os.getuid())
        detail += " (but root is exempt)" if exempt else " (beside those the user runs already)"
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: processes,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NOFILE: limits.open_files,
    }
    if limits.address_space_bytes is not None:
        wanted[resource.RLIMIT_AS] = limits.address_space_bytes
    for kind, most in wanted.items():
        hard = resource.getrlimit(kind)[1]
        # A lower hard limit of the host stays: raising it takes a capability that containers withhold.
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (value, value))
    space = limits.address_space_bytes
    detail += f", files of {limits.file_bytes} bytes, {limits.open_files} open files, no core dumps"
    detail += f", {space} bytes of addresses" if space is not None else ", any number of addresses"
    return Layer("rlimits", not exempt, detail)


def _become(uid: int | None) -> Layer:
    """Change to the user without groups, and give up every capability in any case."""
    kept_bounds = _drop_bounding_set()
    if os.geteuid() != 0:
        outcome = Layer("user", False, f"stays user {os.geteuid()}: only root can change")
    elif uid is None:
        outcome = Layer("user", False, "stays root: the plan names no user")
    else:
        outcome = _switch(uid)
    with contextlib.suppress(OSError):  # an unknown machine: `_held` below tells
        syscalls.drop_capabilities()
    held = _held_capabilities()
    if held and outcome.active:
        raise JudgeFault(f"capabilities {held:x} outlived the change of user")
    detail = outcome.detail
    detail += f"; capabilities {held:x} remain" if held else "; no capabilities"
    detail += f"; bounding set kept: {kept_bounds}" if kept_bounds else ""
    return Layer("user", outcome.active, detail)


def _switch(uid: int) -> Layer:
    try:
        # glibc carries these over to every thread of the process; the kernel's own calls would not.
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        return Layer("user", False, f"cannot become user {uid}: {error}")
    if os.getresuid() != (uid, uid, uid) or os.getresgid() != (uid, uid, uid) or os.getgroups():
        raise JudgeFault(f"the change to user {uid} was only half done")
    return Layer("user", True, f"user and group {uid}, no other groups")


def _drop_bounding_set() -> str:
    """Empty, or why not. Capabilities that no program may ever bring back."""
    for capability in range(_CAPABILITIES_MOST):
        try:
            syscalls.prctl(syscalls.PR_CAPBSET_DROP, capability)
        except PermissionError as error:
            return str(error)
        except OSError:  # EINVAL: past the last one this kernel knows
            break
    with contextlib.suppress(OSError):  # older than Linux 4.3: there are none
        syscalls.prctl(syscalls.PR_CAP_AMBIENT, syscalls.PR_CAP_AMBIENT_CLEAR_ALL)
    return ""


def _held_capabilities() -> int:
    with open("/proc/self/status", encoding="utf-8", errors="replace") as status:
        sets = dict(line.split(":", 1) for line in status if line.startswith("Cap"))
    return int(sets["CapPrm"], 16) | int(sets["CapEff"], 16) | int(sets["CapInh"], 16)


def _grants(plan: Plan) -> list[Grant]:
    grants = [Grant(path, landlock.READ) for path in plan.readable]
    grants += [Grant(path, landlock.DEVICE) for path in plan.devices]
    # An import lists the folder it searches. Where a folder of packages is granted entry by entry (because
    # something in it is not for the child), the names in it have to be readable all the same.
    searched = {os.path.dirname(path) for path in plan.readable} & set(sys.path)
    grants += [Grant(path, landlock.LIST) for path in sorted(searched)]
    grants.append(Grant(plan.scratch, landlock.EVERYTHING))
    if has_private_shared_memory():
        grants.append(Grant(SHARED_MEMORY_FOLDER, landlock.EVERYTHING))
    # Writing because the CUDA driver names its threads there. Root, even without capabilities, owns
    # /proc/sys, so one that could not change its user writes to its own folder only.
    if os.geteuid() == 0:
        grants += [Grant("/proc", landlock.READ), Grant("/proc/self", landlock.PROC)]
    else:
        grants.append(Grant("/proc", landlock.PROC))
    return grants
