"""The rules of advice: each looks at the facts and gives its reason in numbers, or nothing.

Asked in the order of the table. Not covered: how they are put together (advice.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from assay.profile.facts import Facts
from assay.profile.figures import STALLS, microseconds
from assay.records import Step
from assay.records.profile import COMPUTE, LATENCY, LAUNCH, MEMORY

ENOUGH_PERCENT = 90.0
"""Of the speed of light: what is left is hardly worth anybody's time."""
HOST_FACTOR = 3.0
"""A call that takes so many times what its work takes is not held up by the device."""
LONG_US = 100.0
"""Work that is worth a second thread."""
_FEW_PERCENT = 50.0
_SELDOM, _OFTEN = 30.0, 20.0
"""Percent of warps that wait: for memory all do now and then, for anything else few should."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing to try, and when."""

    code: str
    regimes: frozenset[str]
    """Where it is asked; empty for everywhere."""
    reason: Callable[[Facts], str]
    """Empty where it does not apply."""
    action: str


def _enough(facts: Facts) -> str:
    if facts.percent is None or facts.percent < ENOUGH_PERCENT:
        return ""
    return f"{facts.percent:.0f} % of what this device can do for this work is reached"


def _unused(facts: Facts) -> str:
    if facts.replay not in ("right", "never launched"):
        return ""
    return "with its own kernels left out, the answer is still right"


def _spills(facts: Facts) -> str:
    if facts.main is None or not facts.main.spill_bytes:
        return ""
    return f"{facts.main.name} spills {facts.main.spill_bytes} bytes a thread to memory"


def _several(facts: Facts) -> str:
    if facts.kernels < 2:
        return ""
    what = "kernels" if facts.on_gpu else "operators of torch"
    return f"one call runs {facts.kernels} {what}, each reading what the one before wrote"


def _library(facts: Facts) -> str:
    if facts.library_share <= 0.5 or not facts.library:
        return ""
    return f"{facts.library_share:.0%} of the time is library code, most of it {facts.library[0].name}"


def _host(facts: Facts) -> str:
    if not facts.on_gpu or facts.latency_us is None or facts.device_us <= 0:
        return ""
    if facts.latency_us <= HOST_FACTOR * facts.device_us:
        return ""
    return (
        f"a call takes {microseconds(facts.latency_us)}, {microseconds(facts.device_us)} of it on the device"
    )


def _copies(facts: Facts) -> str:
    if facts.copies_share <= 0.15:
        return ""
    return f"{facts.copies_share:.0%} of the time goes into copies, fills and allocation"


def _empty_device(facts: Facts) -> str:
    waves = facts.main.waves if facts.main is not None else None
    if facts.main is None or waves is None or waves >= 0.5:
        return ""
    return f"{facts.main.blocks} blocks fill {waves:.0%} of the device"


def _tail(facts: Facts) -> str:
    waves = facts.main.waves if facts.main is not None else None
    if waves is None or not 1 < waves < 4 or not 0 < waves % 1 < 0.4:
        return ""
    return f"the grid is {waves:.2g} times what the device holds: the last blocks run almost alone"


def _limited(limit: str) -> Callable[[Facts], str]:
    def reason(facts: Facts) -> str:
        main = facts.main
        if main is None or main.occupancy is None or main.occupancy >= 0.5 or main.limited_by != limit:
            return ""
        return f"{main.name} holds {main.occupancy:.0%} of a multiprocessor's warps, limited by {limit}"

    return reason


def _scattered(facts: Facts) -> str:
    for kind in ("load", "store"):
        percent = facts.counted.get(f"{kind}_efficiency_percent")
        if percent is not None and percent < _FEW_PERCENT:
            return f"of the bytes that its {kind}s move, {percent:.0f} % are used"
    return ""


def _traffic(facts: Facts) -> str:
    if facts.traffic is None or facts.traffic < 1.5:
        return ""
    return f"it moves {facts.traffic:.2g} times the bytes that it has to"


def _stalled(*names: str, least: float) -> Callable[[Facts], str]:
    def reason(facts: Facts) -> str:
        worst = max(((facts.counted.get(name, 0.0), name) for name in names), default=(0.0, ""))
        return f"{worst[0]:.0f} % of its warps wait for {STALLS[worst[1]]}" if worst[0] >= least else ""

    return reason


def _no_matrix_units(facts: Facts) -> str:
    percent = facts.counted.get("tensor_percent")
    if percent is None or percent >= 10 or facts.bound != COMPUTE:
        return ""
    return f"the matrix units are busy for {percent:.0f} % of the time"


def _idle_threads(facts: Facts) -> str:
    main = facts.main
    if main is None or main.busy_threads is None or main.threads_there is None or facts.device_us < LONG_US:
        return ""
    if main.busy_threads > 0.6 * main.threads_there:
        return ""
    return f"{main.busy_threads:.1f} of {main.threads_there} threads share the work"


def _scalar_loops(facts: Facts) -> str:
    if facts.main is None or not facts.main.loops or facts.main.packed_loops:
        return ""
    return f"none of its {facts.main.loops} inner loops works on vectors"


def _cold(facts: Facts) -> str:
    if facts.reads_cold is None or facts.reads_cold < 0.3:
        return ""
    return f"{facts.reads_cold:.0%} of its time is gone once its inputs lie in the cache"


def _not_cold(facts: Facts) -> str:
    if facts.reads_cold is None or facts.reads_cold >= 0.1 or facts.bound != MEMORY:
        return ""
    return "with its inputs in the cache it is hardly faster: bytes are not what it waits for"


_ANYWHERE: frozenset[str] = frozenset()
_WAITING = frozenset({MEMORY, LATENCY})
_SHORTER_WAY = "Shorten the way to the device: one launch, no Python between steps, or a CUDA graph."
RULES = (
    Rule("stop", _ANYWHERE, _enough, "Stop here, or ask for the same answer with less work."),
    Rule("unused", _ANYWHERE, _unused, "Let your own kernel make the answer."),
    Rule(
        "spills",
        _ANYWHERE,
        _spills,
        "Keep fewer values alive: smaller tiles, less unrolling, more threads a block for the same tile.",
    ),
    Rule(
        "fuse",
        frozenset({MEMORY, LAUNCH}),
        _several,
        "Fuse: let one kernel read the inputs, do all steps, and write the answer once.",
    ),
    Rule(
        "host",
        frozenset({LAUNCH}),
        _host,
        _SHORTER_WAY,
    ),
    Rule(
        "coalesce",
        _ANYWHERE,
        _scattered,
        "Let neighbouring threads touch neighbouring addresses; go through shared memory to transpose.",
    ),
    Rule("traffic", _ANYWHERE, _traffic, "Read each input once: keep it in registers or shared memory."),
    Rule(
        "more_blocks", _ANYWHERE, _empty_device, "Cut the work into more blocks: along the reduction as well."
    ),
    Rule(
        "registers",
        _WAITING,
        _limited("registers"),
        "Use fewer registers: smaller tiles a thread, launch bounds, 32-bit indices.",
    ),
    Rule(
        "shared", _WAITING, _limited("shared memory"), "Use less shared memory: smaller tiles, fewer stages."
    ),
    Rule("larger_blocks", _WAITING, _limited("blocks"), "Use larger blocks: there is room for more warps."),
    Rule(
        "block_size",
        _WAITING,
        _limited("block size"),
        "Use blocks whose size divides what a multiprocessor holds.",
    ),
    Rule(
        "prefetch",
        _WAITING,
        _stalled("stall_long_scoreboard", least=_SELDOM),
        "Ask for data earlier: more stages, asynchronous copies, several independent loads a thread.",
    ),
    Rule(
        "wider_loads",
        _WAITING,
        _stalled("stall_memory_queue", least=_OFTEN),
        "Use fewer and wider loads: 16 bytes a thread.",
    ),
    Rule(
        "bank_conflicts",
        _ANYWHERE,
        _stalled("stall_short_scoreboard", "stall_shared_queue", least=_OFTEN),
        "Look at the accesses to shared memory: bank conflicts, narrow accesses.",
    ),
    Rule(
        "barriers",
        _ANYWHERE,
        _stalled("stall_barrier", least=_OFTEN),
        "Have fewer barriers, or let warps work on parts of their own.",
    ),
    Rule(
        "matrix_units",
        frozenset({COMPUTE, LATENCY}),
        _no_matrix_units,
        "Put the products on the matrix units (tl.dot, mma), as far as the tolerance allows.",
    ),
    Rule(
        "threads",
        _ANYWHERE,
        _idle_threads,
        "Share the outer loop among the threads (#pragma omp parallel for), in pieces of equal work.",
    ),
    Rule(
        "vectorise",
        _ANYWHERE,
        _scalar_loops,
        "Let the inner loop be vectorised: unit stride, __restrict, #pragma omp simd, no calls inside.",
    ),
    Rule("copies", _ANYWHERE, _copies, "Leave out copies: work on the strides and the type that are given."),
    Rule(
        "library",
        _ANYWHERE,
        _library,
        "Take the library's part over, together with what stands around it, or keep it and leave the rest.",
    ),
    Rule(
        "tail",
        _ANYWHERE,
        _tail,
        "Choose the grid so that the last wave is full, or let blocks stay and loop.",
    ),
    Rule(
        "stream",
        _WAITING,
        _cold,
        "Read in order, wide and once, and ask for what comes next before it is needed.",
    ),
    Rule(
        "in_flight",
        _WAITING,
        _not_cold,
        "Do less between loads: fewer instructions an element, several elements a thread, cheaper indices.",
    ),
    # Not scored, and last: the work itself comes first where it is what takes the time.
    Rule("host", frozenset({MEMORY, COMPUTE, LATENCY}), _host, _SHORTER_WAY),
)
LAST_WORDS = frozenset({"stop"})
OTHERWISE = {
    MEMORY: Step("stream", "Read in order, wide and once.", "moving bytes is what its time goes into"),
    COMPUTE: Step(
        "arithmetic",
        "Do fewer or cheaper operations: reuse partial results, use the widest units that are right.",
        "arithmetic is what its time goes into",
    ),
    LATENCY: Step(
        "in_flight",
        "Have more under way at once: independent loads and sums, not one long chain of steps.",
        "neither memory nor arithmetic is near its limit",
    ),
    LAUNCH: Step(
        "fuse",
        "Do more in one call: take the neighbours' work in, or a larger batch.",
        "starting the work is most of the time",
    ),
}
