"""What ran on the device and for how long, by CUPTI's activity records, through ctypes.

Torch's profiler tells the same and takes four seconds to start in each fresh process; this takes a hundredth
of one. The library is the one torch is linked with. Records grow at their ends from version to version; what
is read here has kept its place from CUDA 10 to 13.

Not covered: activity that ran before `__enter__`; two recorders at once.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch

BUFFER_BYTES = 1 << 20
MEMCPY, MEMSET, KERNEL = 1, 2, 10
START_OFFSET, NAME_OFFSET = 16, 104
"""In a record: when it started and ended (nanoseconds, side by side); a kernel's name."""
REGISTERS_OFFSET, SIZES_OFFSET = 6, 52
"""In a kernel's record: registers of a thread; grid, block, shared memory (static, dynamic), local memory."""
_KINDS = (MEMCPY, MEMSET, KERNEL)
_ALIGNMENT = 8
_FLUSH_FORCED = 1
_NO_MORE_RECORDS = 12
_REQUESTED = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
_COMPLETED = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """How one kernel was launched, by the driver's account."""

    name: str
    time_us: float
    registers: int
    threads: int
    """Per block."""
    blocks: int
    shared_bytes: int
    dynamic_shared_bytes: int
    local_bytes: int
    """Per thread."""


class ActivityRecorder:
    """While entered, what the device does is recorded; `activities` is complete afterwards."""

    def __init__(self) -> None:
        self.activities: list[tuple[str, float]] = []
        """Name and microseconds."""
        self.launches: list[KernelLaunch] = []
        major = (torch.version.cuda or "").partition(".")[0]
        self._cupti = ctypes.CDLL(f"libcupti.so.{major}")
        self._buffers: list[Any] = []
        self._completed: list[tuple[int, int]] = []
        self._callbacks = _REQUESTED(self._request), _COMPLETED(self._complete)

    def __enter__(self) -> ActivityRecorder:
        self._check("cuptiActivityRegisterCallbacks", *self._callbacks)
        for kind in _KINDS:
            self._check("cuptiActivityEnable", kind)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        torch.cuda.synchronize()
        self._check("cuptiActivityFlushAll", _FLUSH_FORCED)
        for each in _KINDS:
            self._check("cuptiActivityDisable", each)
        for address, valid_bytes in self._completed:
            self._read(ctypes.c_void_p(address), ctypes.c_size_t(valid_bytes))

    def _check(self, call: str, *args: Any) -> None:
        if status := getattr(self._cupti, call)(*args):
            raise RuntimeError(f"{call} failed with {status}")

    def _request(self, buffer: Any, size: Any, most_records: Any) -> None:
        memory = ctypes.create_string_buffer(BUFFER_BYTES + _ALIGNMENT)
        self._buffers.append(memory)
        buffer[0] = -(-ctypes.addressof(memory) // _ALIGNMENT) * _ALIGNMENT
        size[0], most_records[0] = BUFFER_BYTES, 0

    def _complete(self, _context: Any, _stream: int, buffer: int, _size: int, valid_bytes: int) -> None:
        # Read later: what a callback raises is lost.
        self._completed.append((buffer, valid_bytes))

    def _read(self, buffer: ctypes.c_void_p, valid_bytes: ctypes.c_size_t) -> None:
        record = ctypes.c_void_p()
        while valid_bytes.value:
            status = self._cupti.cuptiActivityGetNextRecord(buffer, valid_bytes, ctypes.byref(record))
            if status == _NO_MORE_RECORDS:
                return
            if status or not record.value:
                raise RuntimeError(f"cuptiActivityGetNextRecord failed with {status}")
            self.activities.append(read_record(record.value))
            if ctypes.c_uint32.from_address(record.value).value == KERNEL:
                self.launches.append(read_launch(record.value))


def read_record(address: int) -> tuple[str, float]:
    """The name and microseconds of what is recorded there."""
    kind = ctypes.c_uint32.from_address(address).value
    start_ns, end_ns = (ctypes.c_uint64 * 2).from_address(address + START_OFFSET)
    if kind == KERNEL:
        name = written_name(ctypes.c_char_p.from_address(address + NAME_OFFSET).value or b"")
    else:
        name = "Memcpy" if kind == MEMCPY else "Memset"
    return name, (end_ns - start_ns) / 1e3


def read_launch(address: int) -> KernelLaunch:
    """What is recorded there of a kernel."""
    name, time_us = read_record(address)
    registers = ctypes.c_uint16.from_address(address + REGISTERS_OFFSET).value
    sizes = (ctypes.c_int32 * 9).from_address(address + SIZES_OFFSET)
    blocks, threads = sizes[0] * sizes[1] * sizes[2], sizes[3] * sizes[4] * sizes[5]
    return KernelLaunch(name, time_us, registers, threads, blocks, sizes[6], sizes[7], sizes[8])


@functools.cache
def written_name(symbol: bytes) -> str:
    """A C++ symbol as its source has it; any other as it is."""
    if not symbol.startswith(b"_Z"):
        return symbol.decode(errors="replace")
    library = ctypes.CDLL("libstdc++.so.6")
    library.__cxa_demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    address = library.__cxa_demangle(symbol, None, None, ctypes.byref(status))
    if not address:
        return symbol.decode(errors="replace")
    name = ctypes.string_at(address).decode(errors="replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(address))
    return name
