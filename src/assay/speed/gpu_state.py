"""The physical state of a GPU while it is timed: clocks, heat, power, and who else is on it (NVML by ctypes).

A reading that this driver, device or container does not give is None, never a guess.

Whom we count as somebody else. NVML names the processes on a device by number, and the number may be
- a process or, in a container, a *thread* of this PID namespace: it is resolved to its process first, or our
  own process would be taken for a stranger;
- 0, or a number of the host's namespace that means nothing here: our own processes look exactly the same, so
  counting these would call every container busy. They are not counted;
- by accident also the number of some unrelated process here: a live process that has no GPU device file open
  is not the one NVML means. Where we may not look, it counts: a needless warning can be overruled, a wrong
  time cannot be noticed;
- a process that has just ended and that the driver has not cleared away yet: not counted.
So a stranger in another container can stay unseen here. `utilisation_percent`, read while we are idle, is
what shows it.

Not covered: MIG slices (the readings are those of the whole GPU), clients behind an MPS server (they appear
as the server), and changing any setting.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_GPU_SENSOR = 0
_INSUFFICIENT_SIZE = 7
_LATECOMERS = 16
_VERSION_LENGTH = 80
_DEVICE_FILES = ("/dev/nvidia", "/dev/dxg")
_IDLE = 0x1
_REASONS = {
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}


@dataclass(frozen=True, slots=True)
class GpuState:
    """One reading; None where the driver does not say."""

    sm_clock_mhz: int | None
    max_sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    temperature_c: int | None
    power_w: float | None
    throttle_reasons: tuple[str, ...] | None
    """What holds the clock down now; empty if nothing does. An idle device is not throttled."""
    other_processes: int | None
    """Compute processes on the device that are not ours, as far as they can be told apart."""
    utilisation_percent: int | None
    """Share of the last sampling period (up to a second) in which any kernel ran, ours included."""


class _ProcessInfo(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used_bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _Utilisation(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


def read_gpu_state(device: torch.device, own_pids: frozenset[int]) -> GpuState | None:
    """The device's state now; None without NVML or without a GPU."""
    library = _nvml() if device.type == "cuda" else None
    handle = _handle(library, device) if library is not None else None
    if library is None or handle is None:
        return None
    gpu = _Readings(library, handle)
    power_mw = gpu.number("nvmlDeviceGetPowerUsage")
    pids = gpu.compute_pids()
    return GpuState(
        sm_clock_mhz=gpu.number("nvmlDeviceGetClockInfo", _SM_CLOCK),
        max_sm_clock_mhz=gpu.number("nvmlDeviceGetMaxClockInfo", _SM_CLOCK),
        memory_clock_mhz=gpu.number("nvmlDeviceGetClockInfo", _MEMORY_CLOCK),
        temperature_c=gpu.number("nvmlDeviceGetTemperature", _GPU_SENSOR),
        power_w=None if power_mw is None else power_mw / 1000,
        throttle_reasons=gpu.throttle_reasons(),
        other_processes=None if pids is None else count_others(pids, own_pids),
        utilisation_percent=gpu.utilisation_percent(),
    )


def driver_version() -> str | None:
    """The version of the NVIDIA driver, or None without one."""
    library = _nvml()
    text = ctypes.create_string_buffer(_VERSION_LENGTH)
    if library is None or _call(library, "nvmlSystemGetDriverVersion", text, ctypes.c_uint(_VERSION_LENGTH)):
        return None
    return text.value.decode()


def cuda_attribute(number: int, device: torch.device) -> int | None:
    """One attribute by the CUDA driver, which numbers devices as torch does; None if it does not say."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    index = torch.cuda.current_device() if device.index is None else device.index
    value = ctypes.c_int()
    return (
        value.value
        if _call(driver, "cuDeviceGetAttribute", ctypes.byref(value), number, index) == 0
        else None
    )


def count_others(pids: Iterable[int], own_pids: frozenset[int]) -> int:
    """How many processes behind NVML's numbers are somebody else's; see the top of this file."""
    owners = {_process_of(pid) for pid in pids if pid not in own_pids}
    return sum(owner is not None and owner not in own_pids and _may_use_gpu(owner) for owner in owners)


class _Readings:
    """Asks NVML about one device."""

    def __init__(self, library: ctypes.CDLL, handle: ctypes.c_void_p) -> None:
        self._library = library
        self._handle = handle

    def number(self, function: str, *selectors: int) -> int | None:
        value = ctypes.c_uint()
        return value.value if self._ask(function, *selectors, ctypes.byref(value)) == 0 else None

    def throttle_reasons(self) -> tuple[str, ...] | None:
        mask = ctypes.c_ulonglong()
        # The same question under its name since driver 535 and under its older one.
        for function in (
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
        ):
            if self._ask(function, ctypes.byref(mask)) == 0:
                return _named(mask.value)
        return None

    def utilisation_percent(self) -> int | None:
        rates = _Utilisation()
        return rates.gpu if self._ask("nvmlDeviceGetUtilizationRates", ctypes.byref(rates)) == 0 else None

    def compute_pids(self) -> list[int] | None:
        function = "nvmlDeviceGetComputeRunningProcesses_v3"
        count = ctypes.c_uint(0)
        code = self._ask(function, ctypes.byref(count), None)
        if code == 0:
            return []
        if code != _INSUFFICIENT_SIZE:
            return None
        # Between the two calls more may come.
        count = ctypes.c_uint(count.value + _LATECOMERS)
        table = (_ProcessInfo * count.value)()
        if self._ask(function, ctypes.byref(count), table) != 0:
            return None
        return [table[i].pid for i in range(count.value)]

    def _ask(self, function: str, *args: object) -> int | None:
        return _call(self._library, function, self._handle, *args)


def _call(library: ctypes.CDLL, function: str, *args: object) -> int | None:
    """The library's return code, 0 for success; None where this driver has no such function."""
    entry = getattr(library, function, None)
    return None if entry is None else int(entry(*args))


@functools.cache
def _nvml() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return library if _call(library, "nvmlInit_v2") == 0 else None


def _handle(library: ctypes.CDLL, device: torch.device) -> ctypes.c_void_p | None:
    """NVML's handle of torch's device: by address, since CUDA_VISIBLE_DEVICES renumbers torch's alone."""
    properties = torch.cuda.get_device_properties(device)
    bus = getattr(properties, "pci_bus_id", None)
    slot = getattr(properties, "pci_device_id", None)
    domain = getattr(properties, "pci_domain_id", None)
    handle = ctypes.c_void_p()
    if bus is not None and slot is not None and domain is not None:
        address = f"{domain:08X}:{bus:02X}:{slot:02X}.0".encode()
        if _call(library, "nvmlDeviceGetHandleByPciBusId_v2", address, ctypes.byref(handle)) == 0:
            return handle
    name = f"GPU-{properties.uuid}".encode()
    return handle if _call(library, "nvmlDeviceGetHandleByUUID", name, ctypes.byref(handle)) == 0 else None


def _named(mask: int) -> tuple[str, ...]:
    bits = [1 << place for place in range(64) if mask >> place & 1]
    return tuple(_REASONS.get(bit, f"unknown reason {bit:#x}") for bit in bits if bit != _IDLE)


def _process_of(pid: int) -> int | None:
    """The process that a process or thread number belongs to; None if there is none here."""
    if pid == 0:
        return None
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except PermissionError:
        return pid  # it lives, and it is hidden from us: not ours
    except (FileNotFoundError, ProcessLookupError):
        return None
    groups = [line.split()[1] for line in status.splitlines() if line.startswith("Tgid:")]
    return int(groups[0]) if groups else pid


def _may_use_gpu(pid: int) -> bool:
    """Whether the process has a GPU device file open, or we may not look."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except PermissionError:
        return True
    except (FileNotFoundError, ProcessLookupError):
        return False
    return any(_open_file(f"{folder}/{name}").startswith(_DEVICE_FILES) for name in names)


def _open_file(link: str) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:
        return ""  # closed since it was listed
