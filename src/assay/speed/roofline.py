"""How far a time is from the physical limit, and below which line no honest time can lie.

Two limits that must not be mixed up. The *floor* is made of ceilings measured on this device: it grades. A
good kernel comes near it and may pass it by a little (outputs still in the cache when the kernel ends, a
product in split precision that beats the library). The *line* is made of datasheet peaks: under it a time is
a mistake or a forgery. A false alarm there costs an honest candidate its verdict, so every doubt lowers it.

Not covered: traffic between levels of cache, and limits other than memory, arithmetic and launching
(occupancy, latency chains, atomics).
"""

from __future__ import annotations

import math

from assay.records.speed import Roofline
from assay.speed.ceilings import Ceilings
from assay.speed.cost import DECLARED, Work

_MICROSECONDS = 1e6
# Wide products can be put together from narrow ones on faster units: float32 from three of bfloat16 or more,
# float64 from a dozen of int8 or more. An honest kernel may therefore beat its own type's datasheet.
_PUT_TOGETHER = {"float32": ("bfloat16", 3), "float64": ("int8", 12)}


def place_under_roof(work: Work, ceilings: Ceilings, device_us: float) -> Roofline:
    """The floor for this work on this device, and where `device_us` stands against it."""
    limits_us = {
        "memory": memory_us(work, ceilings),
        "compute": compute_us(work, ceilings),
        "latency": ceilings.empty_kernel_us,
    }
    bound = max(limits_us, key=lambda name: limits_us[name])
    floor_us = limits_us[bound]
    return Roofline(
        bytes_read=work.bytes_read,
        bytes_written=work.bytes_written,
        flops=sum(work.flops.values()),
        source=work.source,
        bound=bound,
        floor_us=floor_us,
        percent=100 * floor_us / device_us if device_us > 0 else math.inf,
        invalid_below_us=invalid_below_us(work, ceilings),
    )


def memory_us(work: Work, ceilings: Ceilings) -> float:
    """The time to move the bytes at the bandwidth measured for this mix of reads and writes."""
    total = work.bytes_read + work.bytes_written
    if total == 0:
        return 0.0
    return total / bandwidth_bytes_per_s(work.bytes_read / total, ceilings) * _MICROSECONDS


def bandwidth_bytes_per_s(read_share: float, ceilings: Ceilings) -> float:
    """Between writes alone (0), a copy (a half) and reads alone (1), along straight lines."""
    if read_share <= 0.5:
        low, high, way = ceilings.write_bytes_per_s, ceilings.copy_bytes_per_s, read_share * 2
    else:
        low, high, way = ceilings.copy_bytes_per_s, ceilings.read_bytes_per_s, read_share * 2 - 1
    return low + (high - low) * way


def compute_us(work: Work, ceilings: Ceilings) -> float:
    """The time of the operations, one kind after the other; kinds without a ceiling take none."""
    rates = ceilings.flops_per_s
    return sum(n / rates[kind] for kind, n in work.flops.items() if kind in rates) * _MICROSECONDS


def invalid_below_us(work: Work, ceilings: Ceilings) -> float:
    """Less than this is no speed.

    Writes that fit into the cache need not reach memory while the kernel runs. Of counted work only the
    outputs are certain: an input need not be read whole, and a better algorithm saves operations.
    """
    certain_bytes = max(0, work.bytes_written - ceilings.l2_bytes)
    certain_s = 0.0
    if work.source == DECLARED:
        certain_bytes += work.bytes_read
        certain_s = _least_compute_s(work, ceilings)
    certain_s = max(certain_s, certain_bytes / ceilings.peak_bytes_per_s)
    return max(certain_s * _MICROSECONDS, ceilings.empty_kernel_us / 2)


def _least_compute_s(work: Work, ceilings: Ceilings) -> float:
    """The longest of the kinds: units for different kinds may run at once."""
    peaks = ceilings.peak_flops_per_s
    return max(
        (n / _best_peak(kind, ceilings) for kind, n in work.flops.items() if kind in peaks), default=0.0
    )


def _best_peak(kind: str, ceilings: Ceilings) -> float:
    peaks = ceilings.peak_flops_per_s
    narrow, products = _PUT_TOGETHER.get(kind, (kind, 1))
    return max(peaks[kind], peaks.get(narrow, 0.0) / products)
