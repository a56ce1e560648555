"""Memory that judge and child both see: one flat run of bytes, on the host or on the GPU.

The judge makes an arena and passes file descriptors; the child attaches it. The judge's expected values
live elsewhere and are never shared. Host arenas are sealed memfds, so a child cannot shrink one under the
judge's feet, nor change at all what is only there to be walked over. GPU arenas are CUDA virtual-memory
allocations exported as descriptors: unlike the older IPC handles they do not depend on both sides sharing a
PID namespace.

Not covered: what is written where (see placement.py).
"""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Any, Protocol

import torch

from assay.records.errors import JudgeFault
from assay.worker import cuda_memory

_SEALS = 0x1 | 0x2 | 0x4  # F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW
_SEAL_WRITE = 0x8
_F_ADD_SEALS = 1033


class Arena(Protocol):
    bytes: torch.Tensor
    """Flat uint8 view of the whole arena."""
    size_bytes: int

    def describe(self) -> dict[str, Any]: ...
    def fds(self) -> tuple[int, ...]: ...
    def close(self) -> None: ...


class HostArena:
    """Shared pages of ordinary memory; of constant ones whoever writes gets copies of its own."""

    def __init__(self, size_bytes: int, fd: int | None = None, *, constant: bool = False) -> None:
        self.size_bytes = max(size_bytes, mmap.PAGESIZE)
        self._constant = constant
        self._fd = self._create() if fd is None else fd
        how = mmap.MAP_PRIVATE if constant else mmap.MAP_SHARED
        self._map = mmap.mmap(self._fd, self.size_bytes, how, mmap.PROT_READ | mmap.PROT_WRITE)
        self.bytes = torch.frombuffer(self._map, dtype=torch.uint8)

    def _create(self) -> int:
        fd = os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, self.size_bytes)
        if self._constant:
            os.posix_fallocate(fd, 0, self.size_bytes)
        fcntl.fcntl(fd, _F_ADD_SEALS, _SEALS | (_SEAL_WRITE if self._constant else 0))
        return fd

    def describe(self) -> dict[str, Any]:
        return {"kind": "constant" if self._constant else "host", "size_bytes": self.size_bytes}

    def fds(self) -> tuple[int, ...]:
        return (self._fd,)

    def close(self) -> None:
        # The mapping itself goes when the last tensor over it does: closing it here would pull memory
        # away from under a live view.
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class CudaArena:
    """Device memory shared by descriptor."""

    def __init__(self, size_bytes: int, device: torch.device, fd: int | None = None) -> None:
        self._block = cuda_memory.map_block(size_bytes, device.index or 0, fd)
        self.size_bytes = self._block.size_bytes
        self._device = device
        self.bytes = self._block.as_tensor(device)

    def describe(self) -> dict[str, Any]:
        return {"kind": "cuda", "size_bytes": self.size_bytes}

    def fds(self) -> tuple[int, ...]:
        return (self._block.fd,)

    def close(self) -> None:
        self.bytes = self.bytes.new_empty(0)
        self._block.release()


def make_arena(size_bytes: int, device: torch.device) -> Arena:
    """An arena on the device, or on the host where the GPU cannot share memory by descriptor."""
    if device.type == "cuda" and cuda_memory.can_share(device.index or 0):
        return CudaArena(size_bytes, device)
    return HostArena(size_bytes)


def make_walk(size_bytes: int, device: torch.device) -> Arena:
    """What everybody walks over to empty the caches: the same pages for all, or one would walk faster."""
    return make_arena(size_bytes, device) if device.type == "cuda" else HostArena(size_bytes, constant=True)


def attach_arena(description: dict[str, Any], fds: tuple[int, ...], device: torch.device) -> Arena:
    if description["kind"] == "cuda":
        return CudaArena(int(description["size_bytes"]), device, fds[0])
    if description["kind"] in ("host", "constant"):
        constant = description["kind"] == "constant"
        return HostArena(int(description["size_bytes"]), fds[0], constant=constant)
    raise JudgeFault(f"unknown arena {description['kind']!r}")
