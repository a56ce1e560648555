"""The three numbers that matter in each regime: the first three of a list that are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from assay.profile.facts import Facts
from assay.records import Figure
from assay.records.profile import COMPUTE, LATENCY, LAUNCH, MEMORY, UNKNOWN

MOST_FIGURES = 3
_PREFIXES = ("", "k", "M", "G", "T", "P")
STALLS: Mapping[str, str] = {
    "stall_long_scoreboard": "loads from memory",
    "stall_short_scoreboard": "shared memory",
    "stall_barrier": "barriers",
    "stall_branch": "branches",
    "stall_memory_queue": "a full queue of loads and stores",
    "stall_shared_queue": "a full queue of accesses to shared memory",
    "stall_math": "arithmetic units",
}


def choose_figures(regime: str, facts: Facts) -> tuple[Figure, ...]:
    """At most three; none where nothing was measured."""
    found = [figure for make in _BY_REGIME[regime] if (figure := make(facts)) is not None]
    return tuple(found[:MOST_FIGURES])


def amount(value: float, unit: str) -> str:
    """1.23e9, "B/s" as 1.23 GB/s."""
    power = 0
    while abs(value) >= 1000 and power < len(_PREFIXES) - 1:
        value, power = value / 1000, power + 1
    text = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{text} {_PREFIXES[power]}{unit}"


def microseconds(time_us: float) -> str:
    return f"{time_us:.0f} us" if time_us >= 100 else f"{time_us:.3g} us"


def _reached(facts: Facts) -> Figure | None:
    if facts.percent is None:
        return None
    limit = {"latency": "the least that any call takes here"}.get(facts.bound, f"the {facts.bound} limit")
    text = f"its time is {microseconds(facts.device_us)}; {limit} is {microseconds(facts.floor_us)}"
    return Figure("speed of light", f"{facts.percent:.0f} %", text)


def _bandwidth(facts: Facts) -> Figure | None:
    if not facts.moved_bytes or facts.device_us <= 0:
        return None
    rate = amount(facts.moved_bytes / facts.device_us * 1e6, "B/s")
    text = f"{amount(facts.moved_bytes, 'B')} have to be read and written"
    if facts.bound == MEMORY and facts.floor_us > 0:
        text += f"; this device does {amount(facts.moved_bytes / facts.floor_us * 1e6, 'B/s')}"
    return Figure("bandwidth", rate, text)


def _arithmetic(facts: Facts) -> Figure | None:
    if not facts.flops or facts.device_us <= 0:
        return None
    rate = amount(facts.flops / facts.device_us * 1e6, "FLOP/s")
    text = f"{amount(facts.flops, 'FLOP')} have to be done"
    if facts.bound == COMPUTE and facts.floor_us > 0:
        text += f"; this device does {amount(facts.flops / facts.floor_us * 1e6, 'FLOP/s')}"
    return Figure("arithmetic", rate, text)


def _traffic(facts: Facts) -> Figure | None:
    if facts.traffic is None:
        return None
    return Figure("traffic", f"{facts.traffic:.2g} x", "bytes to and from memory over the least there is")


def _kernels(facts: Facts) -> Figure | None:
    if facts.kernels < 1 or (facts.kernels == 1 and facts.on_gpu):
        return None
    if not facts.on_gpu:
        return Figure(
            "operators", str(facts.kernels), "of torch do work in one call, each over all of its data"
        )
    return Figure("kernels", str(facts.kernels), "launched by one call")


def _host(facts: Facts) -> Figure | None:
    if facts.latency_us is None or facts.device_us <= 0:
        return None
    text = f"from the call to its result; the work itself takes {microseconds(facts.device_us)}"
    return Figure("latency", microseconds(facts.latency_us), text)


def _cold(facts: Facts) -> Figure | None:
    if facts.warm_us is None or facts.reads_cold is None:
        return None
    text = f"with its inputs in the cache; {microseconds(facts.device_us)} without"
    return Figure("warm time", microseconds(facts.warm_us), text)


def _occupancy(facts: Facts) -> Figure | None:
    counted = facts.counted.get("occupancy_percent")
    if facts.main is None or facts.main.occupancy is None:
        return Figure("occupancy", f"{counted:.0f} %", "of a multiprocessor's warps") if counted else None
    limit = f", limited by {facts.main.limited_by}" if facts.main.limited_by else ""
    reached = f"; {counted:.0f} % were reached" if counted else ""
    text = f"of a multiprocessor's warps at most, in {facts.main.name}{limit}{reached}"
    return Figure("occupancy", f"{facts.main.occupancy:.0%}", text)


def _stall(facts: Facts) -> Figure | None:
    if facts.worst_stall is None:
        return None
    name, percent = facts.worst_stall
    return Figure("stalls", f"{percent:.0f} %", f"of its warps wait for {STALLS.get(name, name)}")


def _tensor(facts: Facts) -> Figure | None:
    percent = facts.counted.get("tensor_percent")
    return Figure("matrix units", f"{percent:.0f} %", "of their time busy") if percent is not None else None


def _threads(facts: Facts) -> Figure | None:
    if facts.on_gpu or facts.main is None or facts.main.busy_threads is None:
        return None
    there = f" of {facts.main.threads_there}" if facts.main.threads_there else ""
    return Figure("threads", f"{facts.main.busy_threads:.1f}{there}", "share the work of one call")


def _loops(facts: Facts) -> Figure | None:
    if facts.main is None or facts.main.loops is None or facts.main.packed_loops is None:
        return None
    width = f", {facts.main.vector_bits} bits at a time" if facts.main.vector_bits else ""
    text = f"inner loops work on vectors{width}; the others may be tails"
    return Figure("vectorised", f"{facts.main.packed_loops} of {facts.main.loops}", text)


def _own(facts: Facts) -> Figure | None:
    if facts.own_share is None:
        return None
    return Figure("own code", f"{facts.own_share:.0%}", "of the time; the rest is library code and copies")


_Maker = Callable[[Facts], Figure | None]
_BY_REGIME: Mapping[str, tuple[_Maker, ...]] = {
    MEMORY: (_reached, _bandwidth, _traffic, _kernels, _cold, _threads, _own),
    COMPUTE: (_reached, _arithmetic, _tensor, _loops, _threads, _occupancy, _own),
    LATENCY: (_reached, _stall, _occupancy, _threads, _loops, _cold, _own),
    LAUNCH: (_host, _kernels, _reached, _own, _threads),
    UNKNOWN: (_own, _occupancy, _loops, _threads, _kernels),
}
