"""What this device can do at best: measured ceilings that grade, and peaks that nothing honest exceeds.

Each ceiling is the best of several ways to do one thing, each the median of its samples, on random data
(zeros draw less power and run up to an eighth faster) in buffers far larger than the cache. A copy counts the
bytes it reads and those it writes.

Peaks come from the memory clock and the datasheet, and are never below what was measured with a margin on
top. On a CPU there is no such sheet: twice the best measured (in-cache reads included, since nothing empties
a CPU's caches for certain), and for arithmetic no less than its widest units could do.

Not covered: a device that is busy or throttled while it is measured gets ceilings that are too low, and they
are kept; percentages above 100 are the sign, deleting the file is the cure.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from assay.records.codec import digest, from_plain, to_json
from assay.records.errors import UserError
from assay.speed.gpu_state import cuda_attribute, driver_version

KINDS = ("float64", "float32", "tf32", "float16", "bfloat16", "int8", "float8_e4m3fn")
"""Kinds of arithmetic, each with its own ceiling."""

_FORMAT = "ceilings 1"
_NOT_ZERO = 1.2345
_MEMORY_CLOCK_KHZ, _BUS_WIDTH_BITS = 36, 37
_UNLISTED_MARGIN, _LISTED_MARGIN, _CPU_MARGIN = 1.3, 1.1, 2.0
_SAMPLES_FOR_S, _AFFORDABLE_S = 0.02, 0.02
# Device name, memory in TB/s, then dense TFLOP/s in the order of KINDS; None where the device has none. The
# first name that fits counts. Halves on a 4090 at the rate of half-precision accumulation, the faster one.
_DATASHEETS: tuple[tuple[str, float, tuple[float | None, ...]], ...] = (
    ("GB200", 8.0, (45, 90, 1250, 2500, 2500, 5000, 5000)),
    ("B200", 8.0, (40, 80, 1125, 2250, 2250, 4500, 4500)),
    ("H200 NVL", 4.8, (60, 60, 418, 836, 836, 1671, 1671)),
    ("H200", 4.8, (67, 67, 495, 990, 990, 1979, 1979)),
    ("H100 NVL", 3.94, (60, 60, 418, 836, 836, 1671, 1671)),
    ("H100 PCIe", 2.04, (51.2, 51.2, 378, 756, 756, 1513, 1513)),
    ("H100", 3.35, (67, 67, 495, 990, 990, 1979, 1979)),
    ("A100", 2.04, (19.5, 19.5, 156, 312, 312, 624, None)),
    ("L40S", 0.864, (1.43, 91.6, 183, 362, 362, 733, 733)),
    ("RTX 4090", 1.008, (1.29, 82.6, 82.6, 330.3, 165.2, 660.6, 660.6)),
)
# No core does more in a cycle (two 512-bit units, a tile unit) or has more cycles. None has TF32 or float8.
_CPU_FLOPS_PER_CYCLE = {"float64": 32, "float32": 64, "float16": 2048, "bfloat16": 2048, "int8": 4096}
_CPU_CYCLES_PER_S = 6e9

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The limits of one device."""

    device_name: str
    read_bytes_per_s: float
    copy_bytes_per_s: float
    """Bytes read plus bytes written."""
    write_bytes_per_s: float
    flops_per_s: Mapping[str, float]
    """By kind of arithmetic; kinds that this device or this torch cannot multiply in are absent."""
    empty_kernel_us: float
    """The least a kernel takes by the device's own clock, launch hidden; on a CPU, the least operator."""
    peak_bytes_per_s: float
    peak_flops_per_s: Mapping[str, float]
    l2_bytes: int
    """The last cache before memory."""


def load_ceilings(device: torch.device, folder: Path) -> Ceilings:
    """The ceilings of this device under this driver and torch: from `folder`, or measured and kept there."""
    path = folder / f"ceilings-{_identity(device)[:24]}.json"
    kept = _read(path)
    if kept is None:
        kept = measure_ceilings(device)
        _write(path, kept)
    return kept


def measure_ceilings(device: torch.device) -> Ceilings:
    """Takes a second or two, and up to 3 GiB of the device's memory meanwhile."""
    with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext(), torch.no_grad():
        read, copy, write, empty_kernel_us = _memory_ceilings(device)
        kinds = KINDS if device.type == "cuda" else tuple(_CPU_FLOPS_PER_CYCLE)
        flops = {kind: rate for kind in kinds if (rate := _flops_per_s(kind, device)) is not None}
        best_bytes = max(read, copy, write)
        if device.type == "cuda":
            torch.cuda.empty_cache()
            peak_bytes = _gpu_peak_bytes(device, best_bytes)
            peak_flops = _gpu_peak_flops(device_name(device), flops)
        else:
            peak_bytes = _CPU_MARGIN * max(best_bytes, _cached_read_bytes_per_s(device))
            peak_flops = _cpu_peak_flops(flops)
    return Ceilings(
        device_name=device_name(device),
        read_bytes_per_s=read,
        copy_bytes_per_s=copy,
        write_bytes_per_s=write,
        flops_per_s=flops,
        empty_kernel_us=empty_kernel_us,
        peak_bytes_per_s=peak_bytes,
        peak_flops_per_s=peak_flops,
        l2_bytes=_last_cache_bytes(device),
    )


def device_name(device: torch.device) -> str:
    """The GPU's or the processor's name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _memory_ceilings(device: torch.device) -> tuple[float, float, float, float]:
    """Bytes per second read, copied and written, and microseconds of an empty kernel."""
    size_bytes = _buffer_bytes(device)
    # A sixteenth drawn and repeated: drawing 256 MiB takes a CPU half a second.
    source = torch.randn(size_bytes // 64, device=device, generator=_generator(device)).repeat(16)
    target = torch.empty_like(source)
    doubles = target.view(torch.float64)
    writes: list[Call] = [lambda: target.fill_(_NOT_ZERO), lambda: doubles.fill_(_NOT_ZERO)]
    copies: list[Call] = [lambda: target.copy_(source), lambda: torch.neg(source, out=target)]
    if device.type == "cuda":
        _samples_s(copies[0], device, 150)  # an idle device takes a moment to leave its low clocks
    copy_s = _best_s(copies, device)
    write_s = _best_s(writes, device)
    empty_s = _empty_kernel_s(device, busy_with=writes[0])
    read_s = _best_s(_reads(source), device)
    return size_bytes / read_s, 2 * size_bytes / copy_s, size_bytes / write_s, empty_s * 1e6


def _buffer_bytes(device: torch.device) -> int:
    """Many times any cache, and little beside the problems that are judged: there are two of them."""
    if device.type != "cuda":
        return 1 << 28
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return min(3 << 27, 1 << max(20, int(free_bytes // 4).bit_length() - 1))


def _reads(source: torch.Tensor) -> list[Call]:
    rows = source.view(-1, 8192)
    halves = rows.view(torch.bfloat16)
    library: list[Call] = [source.sum, source.amax, source.view(torch.float64).sum, lambda: rows.sum(-1)]
    if source.device.type != "cuda":
        return library
    return [*library, lambda: rows.amax(-1), lambda: halves.sum(-1), *_triton_reads(source)]


def _triton_reads(source: torch.Tensor) -> list[Call]:
    """A sum with wide loads, many in flight: reads faster than the library's reductions."""
    try:
        import triton
        import triton.language as tl
    except ImportError:
        return []

    @triton.jit
    def sum_blocks(words, sums, block: tl.constexpr, rounds: tl.constexpr):  # type: ignore[no-untyped-def]
        program = tl.program_id(0)
        place = words + program.to(tl.int64) * block * rounds + tl.arange(0, block)
        total = tl.zeros([block], dtype=tl.float32)
        for turn in tl.static_range(rounds):
            total += tl.load(place + turn * block)
        tl.store(sums + program, tl.sum(total, axis=0))

    def way(block: int, rounds: int, warps: int) -> Call:
        programs = source.numel() // (block * rounds)
        sums = source.new_empty(programs)
        # The stubs know nothing of launches.
        launch: Any = sum_blocks[(programs,)]
        return lambda: launch(source, sums, block, rounds, num_warps=warps)

    ways = [way(2048, 8, 8), way(4096, 2, 8), way(8192, 4, 16)]
    try:
        for each in ways:
            each()
    except (triton.TritonError, RuntimeError, OSError, subprocess.CalledProcessError):
        # Triton needs a host compiler and a cache folder. Without them the library's reductions remain, and
        # the ceiling is a few percent low.
        return []
    return ways


def _flops_per_s(kind: str, device: torch.device) -> float | None:
    """Of a large square product; None where it cannot be computed."""
    try:
        with _tf32(kind == "tf32"):
            size = _affordable_size(kind, device)
            return 2 * size**3 / _best_s(_products(kind, size, device), device)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError):
        return None


def _affordable_size(kind: str, device: torch.device) -> int:
    """On a CPU a type without instructions of its own takes seconds for what others do in milliseconds."""
    if device.type == "cuda":
        return 4096 if kind == "float64" else 8192
    size = 64
    while size < 1024 and min(_samples_s(_products(kind, size, device)[0], device, 3)) < _AFFORDABLE_S:
        size *= 2
    return size


def _products(kind: str, size: int, device: torch.device) -> list[Call]:
    """Ways to multiply two square matrices."""
    generator = _generator(device)
    shape = (size, size)
    if kind == "int8":
        whole = torch.randint(-127, 128, shape, dtype=torch.int8, device=device, generator=generator)
        return [lambda: torch._int_mm(whole, whole.t())]
    if kind == "float8_e4m3fn":
        narrow = torch.randn(shape, device=device, generator=generator).to(torch.float8_e4m3fn)
        one = torch.ones((), device=device)
        named = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16, "use_fast_accum": True}
        return [lambda: torch._scaled_mm(narrow, narrow.t(), **named)]
    dtype = torch.float32 if kind == "tf32" else getattr(torch, kind)
    left = torch.randn(shape, dtype=dtype, device=device, generator=generator)
    right = torch.randn(shape, dtype=dtype, device=device, generator=generator)
    out = torch.empty_like(left)
    ways: list[Call] = [lambda: torch.mm(left, right, out=out), lambda: torch.mm(left, right.t(), out=out)]
    return ways if device.type == "cuda" else ways[:1]


@contextlib.contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _best_s(ways: list[Call], device: torch.device) -> float:
    """Seconds of the fastest way."""
    return min(_typical_s(way, device) for way in ways)


def _typical_s(call: Call, device: torch.device) -> float:
    call()  # compiles, tunes, allocates
    trial_s = _samples_s(call, device, 1)[0]
    wanted = min(15, int(_SAMPLES_FOR_S / max(trial_s, 1e-9)))
    if device.type == "cuda":
        return statistics.median(_samples_s(call, device, max(3, wanted)))
    # On a CPU whoever else runs takes whole time slices: the best sample is the one that was left alone.
    return min(trial_s, *_samples_s(call, device, max(1, wanted)))


def _samples_s(call: Call, device: torch.device, samples: int) -> list[float]:
    if device.type != "cuda":
        marks_s = [time.perf_counter()]
        for _ in range(samples):
            call()
            marks_s.append(time.perf_counter())
        return [end - start for start, end in itertools.pairwise(marks_s)]
    # One event between calls and no waiting: the host runs ahead, and its work stays hidden.
    events = [torch.cuda.Event(enable_timing=True) for _ in range(samples + 1)]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    events[-1].synchronize()
    return [start.elapsed_time(end) / 1e3 for start, end in itertools.pairwise(events)]


def _empty_kernel_s(device: torch.device, busy_with: Call) -> float:
    one = torch.ones(1, device=device)
    ways: list[Call] = [lambda: one.fill_(_NOT_ZERO), lambda: one.neg_()]
    if device.type != "cuda":
        return min(statistics.median(_samples_s(way, device, 201)[1:]) for way in ways)
    medians = []
    for way in ways:
        way()
        pairs = []
        for _ in range(21):
            # Behind a long kernel the host has queued everything before the device gets there.
            busy_with()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            way()
            end.record()
            pairs.append((start, end))
        torch.cuda.synchronize()
        medians.append(statistics.median(start.elapsed_time(end) for start, end in pairs) / 1e3)
    return min(medians)


def _cached_read_bytes_per_s(device: torch.device) -> float:
    """By all threads; measured on one, since so small a tensor is not split."""
    small = torch.randn(1 << 15, device=device, generator=_generator(device))
    return torch.get_num_threads() * small.nbytes / min(_samples_s(small.sum, device, 200))


def _generator(device: torch.device) -> torch.Generator:
    """Our own: measuring leaves the process's random state alone."""
    return torch.Generator(device=device).manual_seed(1)


def _gpu_peak_bytes(device: torch.device, measured: float) -> float:
    """By the memory clock and the bus, else by the datasheet, else guessed from what was measured."""
    clock_khz = cuda_attribute(_MEMORY_CLOCK_KHZ, device) or 0
    width_bits = cuda_attribute(_BUS_WIDTH_BITS, device) or 0
    listed = _datasheet(device_name(device))
    peak = clock_khz * 1e3 * 2 * width_bits / 8 or (listed[1] * 1e12 if listed else 0.0)
    # A figure below what was measured is as good as none.
    return peak if peak >= measured else _UNLISTED_MARGIN * measured


def _gpu_peak_flops(name: str, measured: Mapping[str, float]) -> dict[str, float]:
    peaks = {kind: _UNLISTED_MARGIN * rate for kind, rate in measured.items()}
    listed = _datasheet(name)
    for kind, tera in zip(KINDS, listed[2] if listed else (), strict=False):
        if tera is not None:
            # A card may boost beyond the clock its sheet was written for.
            peaks[kind] = max(tera * 1e12, _LISTED_MARGIN * measured.get(kind, 0.0))
    return peaks


def _cpu_peak_flops(measured: Mapping[str, float]) -> dict[str, float]:
    cycles_per_s = _CPU_CYCLES_PER_S * (os.cpu_count() or 1)
    widest = {kind: flops * cycles_per_s for kind, flops in _CPU_FLOPS_PER_CYCLE.items()}
    return {kind: max(_CPU_MARGIN * rate, widest[kind]) for kind, rate in measured.items()}


def _datasheet(name: str) -> tuple[str, float, tuple[float | None, ...]] | None:
    return next((sheet for sheet in _DATASHEETS if sheet[0] in name), None)


def _last_cache_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    levels = []
    # Sizes read "307200K".
    for cache in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            size_kib = int((cache / "size").read_text().strip().removesuffix("K"))
            levels.append((int((cache / "level").read_text()), size_kib * 1024))
        except (OSError, ValueError):
            continue  # virtual machines leave some of it out
    return max(levels)[1] if levels else 0


def _identity(device: torch.device) -> str:
    """Everything that, changed, makes measured ceilings those of another machine."""
    if device.type == "cuda":
        unit = str(torch.cuda.get_device_properties(device).uuid)
    else:
        unit = f"{platform.node()}, {torch.get_num_threads()} threads"
    return digest(_FORMAT, device_name(device), unit, driver_version() or "", str(torch.__version__))


def _read(path: Path) -> Ceilings | None:
    """What is kept; None if there is nothing, or nothing one can divide by."""
    try:
        kept = from_plain(Ceilings, json.loads(path.read_text()), "ceilings")
    except (OSError, ValueError, UserError):
        return None
    numbers = [getattr(kept, field.name) for field in fields(kept) if field.type == "float"]
    numbers += [*kept.flops_per_s.values(), *kept.peak_flops_per_s.values()]
    return kept if all(math.isfinite(number) and number > 0 for number in numbers) else None


def _write(path: Path, ceilings: Ceilings) -> None:
    """By rename, so that another judge sees a whole file or none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".partial-")
        try:
            with os.fdopen(descriptor, "w") as stream:
                stream.write(to_json(ceilings, indent=1))
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot keep ceilings in {path.parent}: make it writable ({error})") from error
