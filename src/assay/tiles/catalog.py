"""All kernels: for users, for tables, for whoever looks for a kernel that fits."""

from __future__ import annotations

from collections.abc import Mapping

from assay.tiles.kernel import Kernel
from assay.tiles.kernels import attention, gemm

KERNELS: Mapping[str, Kernel] = {entry.name: entry for entry in (gemm.ENTRY, attention.ENTRY)}
