"""What a run is allowed: the plan that the three steps of the sandbox carry out.

Not covered: choosing the figures, and the clock; time limits are the judge's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from assay.records.layers import Layer

LAYERS: tuple[str, ...] = (
    "pid_namespace",
    "network_namespace",
    "mount_namespace",
    "ipc_namespace",
    "user",
    "landlock",
    "seccomp",
    "rlimits",
    "scratch_quota",
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of the machine a run may take. Core dumps are always off."""

    memory_bytes: int
    """For the judge's watchdog, which compares it with `resident_bytes`; the kernel does not enforce it."""
    address_space_bytes: int | None
    """RLIMIT_AS of each process; None where CUDA is used, since the driver reserves huge address ranges."""
    processes: int
    """RLIMIT_NPROC: processes and threads of the run together."""
    file_bytes: int
    """RLIMIT_FSIZE: the largest single file."""
    scratch_bytes: int
    """All files in the scratch folder together. They live in memory and are not part of `resident_bytes`."""
    open_files: int
    """RLIMIT_NOFILE of each process."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a run may read and write, as whom, and how much."""

    scratch: str
    """An existing empty folder: the child's working folder, HOME, TMPDIR and caches.

    Where there is no mount namespace the child's user has to be able to enter the folders above it."""
    readable: tuple[str, ...]
    """Files and folders to read and execute; see `readable_paths`."""
    devices: tuple[str, ...]
    """Device files to read, write and control; see `device_paths`."""
    uid: int | None
    """The user (and group) to become; None keeps the judge's own. It must be used by nothing else."""
    limits: Limits
    loopback: bool = False
    """The run's processes may speak TCP to each other, where they have a network namespace of their own."""


def missing(layers: Iterable[Layer], required: Iterable[str] = LAYERS) -> list[Layer]:
    """The required layers that are not active; one nobody reported counts as not active."""
    found = {layer.name: layer for layer in layers}
    lacking = [found.get(name, Layer(name, False, "not reported")) for name in required]
    return [layer for layer in lacking if not layer.active]
