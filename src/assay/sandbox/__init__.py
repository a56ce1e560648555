"""Confines one process tree: namespaces, mounts, user, Landlock, seccomp, limits.

It knows nothing of what runs in it. The order of use: a trusted, single-threaded process forks P1; P1 calls
`isolate` and forks P2; P2 calls `furnish`, then `confine`, then runs what is not trusted. With CUDA,
`confine` is taken apart: `restrict`, the CUDA context, `seal`. Each returns the layers it is answerable for;
what the machine lacks is reported, not raised. `kill_all` ends the run.

Not covered: bugs of the kernel and of device drivers, side channels, denial of service on the devices, and
descriptors that the caller leaves open.
"""

from __future__ import annotations

from assay.sandbox.confinement import confine, restrict, seal
from assay.sandbox.mounts import furnish
from assay.sandbox.namespaces import isolate
from assay.sandbox.paths import device_paths, readable_paths
from assay.sandbox.plan import LAYERS, Limits, Plan, missing
from assay.sandbox.probing import probe
from assay.sandbox.processes import (
    companions,
    cpu_s,
    kill_all,
    kill_namespace,
    namespace_bytes,
    proportional_bytes,
    resident_bytes,
    rest,
    stand_still,
    unused_uid,
)

__all__ = [
    "LAYERS",
    "Limits",
    "Plan",
    "companions",
    "confine",
    "cpu_s",
    "device_paths",
    "furnish",
    "isolate",
    "kill_all",
    "kill_namespace",
    "missing",
    "namespace_bytes",
    "probe",
    "proportional_bytes",
    "readable_paths",
    "resident_bytes",
    "rest",
    "restrict",
    "seal",
    "stand_still",
    "unused_uid",
]
