"""What a verdict, its resources and counters say about a candidate's time, under one name each.

Not covered: what follows from it (advice.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from assay.records import Census, Counters, KernelResources, Passed, Share

NOISY = 1.25
"""How far apart the ends of an interval are where the machine says more than the kernel."""


@dataclass(frozen=True, slots=True)
class Facts:
    """None, empty or 0 where nothing is known."""

    on_gpu: bool
    bound: str = ""
    """Which limit is the nearest: "memory", "compute" or "latency"."""
    percent: float | None = None
    """Of the speed of light."""
    floor_us: float = 0.0
    device_us: float = 0.0
    warm_us: float | None = None
    latency_us: float | None = None
    moved_bytes: int = 0
    """The least that has to be read and written."""
    flops: int = 0
    kernels: int = 0
    """Launches of one call on a device; on a CPU, operators of torch that do work."""
    busy_us: float = 0.0
    """All kernels of one call together, or all of torch's operators."""
    own_share: float | None = None
    library: tuple[Share, ...] = ()
    """Library code by its time, the longest first."""
    library_share: float = 0.0
    copies_share: float = 0.0
    """Of the time in kernels, or of the call on a CPU: allocation, views and copies."""
    replay: str = ""
    main: KernelResources | None = None
    """The kernel that takes the longest, of those that are the candidate's own."""
    counted: Mapping[str, float] = field(default_factory=dict)
    """Counters of the kernel that takes the longest."""
    noisy: bool = False
    """Its times scatter so much that they are rough."""
    counted_bytes: float = 0.0
    """To and from memory in all kernels of one call at the scored size; where it was counted."""

    @property
    def reads_cold(self) -> float | None:
        """The share of its time that is gone once its inputs lie in the cache."""
        if self.warm_us is None or self.device_us <= 0:
            return None
        return max(0.0, 1 - self.warm_us / self.device_us)

    @property
    def traffic(self) -> float | None:
        """Bytes that went to and from memory over the least there is to move."""
        return self.counted_bytes / self.moved_bytes if self.counted_bytes and self.moved_bytes else None

    @property
    def worst_stall(self) -> tuple[str, float] | None:
        """What warps wait for most of all, and in percent how many of them do."""
        stalls = {name: value for name, value in self.counted.items() if name.startswith("stall_")}
        return max(stalls.items(), key=lambda item: item[1]) if stalls else None


def facts_of(verdict: Passed, counters: Counters | None = None) -> Facts:
    """Everything that advice is made of."""
    on_gpu = verdict.environment.device.startswith("cuda")
    speed = verdict.speed
    roof = speed.roofline if speed is not None else None
    times = speed.times if speed is not None else None
    shares = verdict.census.shares if verdict.census is not None else ()
    timed = sorted((share for share in shares if share.time_us > 0), key=lambda share: -share.time_us)
    library = tuple(share for share in timed if share.kind == "library")
    total_us = _total_us(verdict.census, timed, on_gpu=on_gpu)
    working = timed if on_gpu else library
    copies_us = sum(share.time_us for share in timed if share.kind == "housekeeping")
    return Facts(
        on_gpu=on_gpu,
        bound=roof.bound if roof is not None else "",
        percent=roof.percent if roof is not None else None,
        floor_us=roof.floor_us if roof is not None else 0.0,
        device_us=times.device_us if times is not None else 0.0,
        warm_us=times.warm_us if times is not None else None,
        latency_us=times.latency_us if times is not None else None,
        moved_bytes=roof.bytes_read + roof.bytes_written if roof is not None else 0,
        flops=roof.flops if roof is not None else 0,
        kernels=sum(share.calls for share in working),
        busy_us=sum(share.time_us for share in working),
        own_share=verdict.census.own_share if verdict.census is not None else None,
        library=library,
        library_share=sum(share.time_us for share in library) / total_us if total_us else 0.0,
        copies_share=copies_us / total_us if total_us else 0.0,
        replay=verdict.census.replay if verdict.census is not None else "",
        main=_main(verdict.resources, timed),
        counted=counters.kernels[0].values if counters is not None and counters.kernels else {},
        noisy=speed is not None and speed.ratio.high > NOISY * speed.ratio.low,
        counted_bytes=_counted_bytes(verdict, counters),
    )


def _counted_bytes(verdict: Passed, counters: Counters | None) -> float:
    """Another case than the one that is scored says nothing about its bytes."""
    if counters is None or not verdict.cases or counters.case != verdict.cases[0].name:
        return 0.0
    names = ("dram_read_bytes", "dram_write_bytes")
    return sum(kernel.values.get(name, 0.0) for kernel in counters.kernels for name in names)


def _total_us(census: Census | None, timed: list[Share], *, on_gpu: bool) -> float:
    """Of the call that was counted: all kernels, or torch's operators and what they leave to its own code."""
    told_us = sum(share.time_us for share in timed)
    if on_gpu or census is None or census.own_share is None or census.own_share >= 1:
        return told_us
    return sum(share.time_us for share in timed if share.kind != "own") / (1 - census.own_share)


def _main(resources: tuple[KernelResources, ...], timed: list[Share]) -> KernelResources | None:
    by_name = {kernel.name: kernel for kernel in resources}
    ran = [by_name[share.name] for share in timed if share.name in by_name]
    return next(iter((*ran, *resources)), None)
