"""Leaves the candidate's own kernels out: launches that do nothing, to see whether they mattered.

Not covered: extensions that the candidate built itself, and kernels that were compiled and kept by hand.
"""

from __future__ import annotations

import sys
from typing import Any

from assay.worker.bare import BareEntry
from assay.worker.entry_types import Entry

_LAUNCHERS = (
    ("triton.runtime.jit", "JITFunction", "run"),
    ("triton.runtime.interpreter", "InterpretedFunction", "run"),
    ("torch.cuda._utils", "_CudaKernel", "__call__"),
)


class Launches:
    """How many launches were left out since."""

    def __init__(self) -> None:
        self.count = 0

    def leave_out(self, *_args: Any, **_kwargs: Any) -> None:
        self.count += 1


def mute(entry: Entry) -> Launches:
    """From now on no kernel of the candidate's own does anything."""
    launches = Launches()
    if isinstance(entry, BareEntry):
        entry.replace_kernels(launches.leave_out)
    for module_name, class_name, method in _LAUNCHERS:
        owner = getattr(sys.modules.get(module_name), class_name, None)
        if owner is not None:
            setattr(owner, method, lambda _self, *_a, **_k: launches.leave_out())
    return launches
