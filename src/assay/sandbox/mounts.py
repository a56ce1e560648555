"""Second step, in P2: an own /proc, a scratch folder with a quota, an own /dev/shm, a way to what is needed.

Runs before the CUDA context is made, since the driver wants a /proc that fits the pid namespace. The judge
does not see what the child writes into its scratch folder: it lies on a tmpfs of the child's mount namespace.

Not covered: a root folder of its own. The rest of the file system stays visible; Landlock and the change of
user keep it from being read and written.
"""

from __future__ import annotations

import os
import signal

from assay.records.errors import JudgeFault
from assay.records.layers import Layer
from assay.sandbox import passage, syscalls
from assay.sandbox.namespaces import has_private_mounts, mount_proc
from assay.sandbox.plan import Plan

SHARED_MEMORY_FOLDER = "/dev/shm"
_SHARED_MEMORY_NAME = "assay-shm"
_SHARED_MEMORY_MOST_BYTES = 64 << 20
_BYTES_PER_FILE = 4096


def furnish(plan: Plan) -> list[Layer]:
    """Mount what the child needs. Reports the mount namespace and the scratch quota."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    scratch = os.path.realpath(plan.scratch)
    if not has_private_mounts():
        layers = _without_mounts(plan, scratch)
    else:
        layers = _with_mounts(plan, scratch)
    os.chdir(scratch)
    return layers


def has_private_shared_memory() -> bool:
    """Is /dev/shm the one that `furnish` mounted? Read from the kernel, so that it is true after any fork."""
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as table:
        mounted = [line.split()[0] for line in table if line.split()[1] == SHARED_MEMORY_FOLDER]
    return bool(mounted) and mounted[-1] == _SHARED_MEMORY_NAME


def _with_mounts(plan: Plan, scratch: str) -> list[Layer]:
    notes = []
    uid = _other_user(plan)
    covers = passage.survey((*plan.readable, scratch), uid) if uid is not None else []
    if os.getpid() == 1:
        try:
            mount_proc()
        except OSError as error:
            raise JudgeFault(f"mounting /proc worked in the rehearsal and failed now: {error}") from error
        notes.append("own /proc")
    for cover in covers:
        try:
            passage.open_passage(cover, scratch)
        except OSError as error:
            raise JudgeFault(f"covering {cover.folder} failed half-way: {error}") from error
        notes.append(f"{cover.folder} hidden but for {len(cover.needed)} paths")
    quota = _mount_scratch(plan, scratch)
    notes.append(_mount_shared_memory(plan))
    return [Layer("mount_namespace", True, ", ".join(notes)), quota]


def _other_user(plan: Plan) -> int | None:
    """The user that `confine` will change to, if it can."""
    return plan.uid if os.geteuid() == 0 else None


def _mount_scratch(plan: Plan, scratch: str) -> Layer:
    size = plan.limits.scratch_bytes
    uid = _other_user(plan)
    owner, group = (os.geteuid(), os.getegid()) if uid is None else (uid, uid)
    options = f"size={size},nr_inodes={max(1024, size // _BYTES_PER_FILE)},mode=0700,uid={owner},gid={group}"
    try:
        # Not noexec: the child loads what it compiles there.
        syscalls.mount("assay-scratch", scratch, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
    except OSError as error:
        _hand_over(plan, scratch)
        return Layer("scratch_quota", False, str(error))
    return Layer("scratch_quota", True, f"tmpfs of {size} bytes")


def _mount_shared_memory(plan: Plan) -> str:
    size = min(plan.limits.scratch_bytes, _SHARED_MEMORY_MOST_BYTES)
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
    try:
        syscalls.mount(
            _SHARED_MEMORY_NAME,
            SHARED_MEMORY_FOLDER,
            "tmpfs",
            flags,
            f"size={size},nr_inodes=4096,mode=1777",
        )
    except OSError as error:
        return f"{SHARED_MEMORY_FOLDER} is the host's, so closed ({error})"
    return f"own {SHARED_MEMORY_FOLDER} of {size} bytes"


def _without_mounts(plan: Plan, scratch: str) -> list[Layer]:
    """Without a mount namespace nothing may be mounted: it would be mounted on the host."""
    _hand_over(plan, scratch)
    detail = "no mount namespace"
    uid = _other_user(plan)
    if uid is not None:
        paths = (*plan.readable, scratch)
        closed = {passage.closed_folder(os.path.realpath(path), uid) for path in paths}
        shut = sorted(folder for folder in closed if folder is not None)
        if shut:
            detail += f"; user {uid} cannot enter {', '.join(shut)}"
    return [
        Layer("mount_namespace", False, detail),
        Layer(
            "scratch_quota", False, f"no mount namespace; single files up to {plan.limits.file_bytes} bytes"
        ),
    ]


def _hand_over(plan: Plan, scratch: str) -> None:
    """Give the plain folder to the child's user, who owns the tmpfs otherwise."""
    uid = _other_user(plan)
    if uid is not None:
        os.chown(scratch, uid, uid)
