"""How many blocks of a kernel one multiprocessor can hold, and which of its stores runs out first.

The device's sizes come from the driver; the grain in which registers and shared memory are handed out is the
same from compute capability 7.0 on (shared memory in 256 bytes before 8.0, which makes no difference here).

Not covered: clusters, and shared memory that the driver leaves to the cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from assay.speed.gpu_state import cuda_attribute

_REGISTERS_GRAIN = 256
"""Of a warp."""
_WARPS_GRAIN = 4
"""A multiprocessor's registers lie in four parts."""
_SHARED_GRAIN_BYTES = 128
# CUdevice_attribute, in the order of `SmLimits`.
_ATTRIBUTES = (10, 39, 106, 82, 81, 111, 16)


@dataclass(frozen=True, slots=True)
class SmLimits:
    """What one multiprocessor holds."""

    warp: int
    """Threads."""
    threads: int
    blocks: int
    registers: int
    shared_bytes: int
    reserved_bytes: int
    """Shared memory that the system takes of each block."""
    multiprocessors: int


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Blocks at once on one multiprocessor."""

    blocks: int
    share: float
    """Of the warps it could hold."""
    limited_by: str
    """Empty where it holds all the warps it can."""


def sm_limits(device: torch.device) -> SmLimits | None:
    """None on a CPU, and where the driver does not say."""
    if device.type != "cuda":
        return None
    values = [value for number in _ATTRIBUTES if (value := cuda_attribute(number, device)) is not None]
    return SmLimits(*values) if len(values) == len(_ATTRIBUTES) else None


def occupancy(threads: int, registers: int, shared_bytes: int, limits: SmLimits) -> Occupancy:
    """Of blocks with so many threads, registers a thread and shared memory, static and dynamic together."""
    warps = _steps(max(threads, 1), limits.warp)
    room = limits.threads // limits.warp
    of_warp = _steps(max(registers, 1) * limits.warp, _REGISTERS_GRAIN) * _REGISTERS_GRAIN
    by_registers = limits.registers // of_warp // _WARPS_GRAIN * _WARPS_GRAIN // warps
    of_block = _steps(shared_bytes + limits.reserved_bytes, _SHARED_GRAIN_BYTES) * _SHARED_GRAIN_BYTES
    fitting = {
        "registers": by_registers,
        "shared memory": limits.shared_bytes // of_block if of_block else limits.blocks,
        "blocks": limits.blocks,
        "block size": room // warps,
    }
    blocks = min(fitting.values())
    share = blocks * warps / room
    limit = min(fitting, key=lambda name: fitting[name])
    return Occupancy(blocks, share, limit if share < 1 else "")


def _steps(amount: int, size: int) -> int:
    return -(-amount // size)
