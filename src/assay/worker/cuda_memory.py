"""CUDA virtual-memory blocks shared between processes by file descriptor (driver API through ctypes).

Not covered: peer access between GPUs; a block lives on one device.
"""

from __future__ import annotations

import ctypes
import functools
import os

import torch

from assay.records.errors import JudgeFault

_PINNED = 1
_POSIX_FD = 1
_ON_DEVICE = 1
_READ_WRITE = 3
_MINIMUM_GRANULARITY = 0
_ATTRIBUTE_POSIX_FD_SUPPORTED = 103


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _AllocationProperties(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32_metadata", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _call(name: str, *args: object) -> None:
    code = getattr(_driver(), name)(*args)
    if code:
        raise JudgeFault(f"{name} failed with CUDA error {code}")


@functools.cache
def can_share(device_index: int) -> bool:
    """Whether this driver exports allocations as descriptors on this GPU."""
    torch.cuda.init()
    value = ctypes.c_int()
    code = _driver().cuDeviceGetAttribute(ctypes.byref(value), _ATTRIBUTE_POSIX_FD_SUPPORTED, device_index)
    return code == 0 and value.value == 1


class Block:
    """A mapped allocation; the descriptor keeps it shareable."""

    def __init__(self, address: int, size_bytes: int, handle: int, fd: int) -> None:
        self.address = address
        self.size_bytes = size_bytes
        self.fd = fd
        self._handle = handle

    def as_tensor(self, device: torch.device) -> torch.Tensor:
        return torch.as_tensor(_Exposed(self.address, self.size_bytes), device=device)

    def release(self) -> None:
        if not self.address:
            return
        torch.cuda.synchronize()
        size = ctypes.c_size_t(self.size_bytes)
        _call("cuMemUnmap", ctypes.c_uint64(self.address), size)
        _call("cuMemAddressFree", ctypes.c_uint64(self.address), size)
        _call("cuMemRelease", ctypes.c_uint64(self._handle))
        os.close(self.fd)
        self.address = 0


class _Exposed:
    """Lets torch view foreign device memory without copying it."""

    def __init__(self, address: int, size_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 2,
        }


def map_block(size_bytes: int, device_index: int, fd: int | None) -> Block:
    """Make a shareable block, or map the one behind a descriptor received from another process."""
    torch.cuda.current_stream()  # the driver API works on the context torch has made current
    properties = _AllocationProperties(_PINNED, _POSIX_FD, _Location(_ON_DEVICE, device_index), None)
    handle = ctypes.c_uint64()
    if fd is None:
        granularity = ctypes.c_size_t()
        _call(
            "cuMemGetAllocationGranularity",
            ctypes.byref(granularity),
            ctypes.byref(properties),
            _MINIMUM_GRANULARITY,
        )
        size_bytes = -(-max(size_bytes, 1) // granularity.value) * granularity.value
        _call(
            "cuMemCreate",
            ctypes.byref(handle),
            ctypes.c_size_t(size_bytes),
            ctypes.byref(properties),
            ctypes.c_uint64(0),
        )
        exported = ctypes.c_int()
        _call("cuMemExportToShareableHandle", ctypes.byref(exported), handle, _POSIX_FD, ctypes.c_uint64(0))
        fd = exported.value
    else:
        _call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(fd), _POSIX_FD)
    address = ctypes.c_uint64()
    size = ctypes.c_size_t(size_bytes)
    zero = ctypes.c_uint64(0)
    _call("cuMemAddressReserve", ctypes.byref(address), size, ctypes.c_size_t(0), zero, zero)
    _call("cuMemMap", address, size, ctypes.c_size_t(0), handle, zero)
    access = _Access(_Location(_ON_DEVICE, device_index), _READ_WRITE)
    _call("cuMemSetAccess", address, size, ctypes.byref(access), ctypes.c_size_t(1))
    return Block(address.value, size_bytes, handle.value, fd)
