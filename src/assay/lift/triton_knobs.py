"""Launch knobs of a lifted kernel: block sizes, warps, stages, registers.

Every value that `set_knob` lets through gives a kernel that means the same. Which of them is fast is for
measurement to say. Block sizes of a persistent reduction's row are no knobs: they follow from the row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from assay.lift.record import CannotLift, Kernel
from assay.lift.triton_launch import LAUNCH_OPTIONS, check_grid, power_of_2
from assay.lift.triton_syntax import BLOCK_OF, constant, parse

WARPS = (1, 2, 4, 8, 16, 32)
STAGES = (1, 2, 3, 4, 5, 6)
REGISTER_LIMITS = (0, 64, 96, 128, 168, 255)
"""0 for none."""
MOST_ELEMENTS = 65536
"""Of a tile: 64 for each thread of the largest program."""
MOST_EACH = 128
"""Elements of a tile for one thread; more cannot stay in registers."""
REGISTERS = 65536
"""Of one processor."""
SHARED_BYTES = 227 * 1024
"""For one program."""
LEAST_OF_PRODUCT = 16
"""A side of what tl.dot takes."""


def sizes_of(kernel: Kernel) -> dict[str, int]:
    """Elements along each axis that is known: {"x": 4096, "r0_": 32000}."""
    return {axis: int(size) for axis, size in (pair.split("=") for pair in kernel.facts["sizes"].split())}


def divisibility(kernel: Kernel) -> dict[str, int]:
    """By block size: what it has to divide, as its mask was left out."""
    return {knob: int(size) for knob, size in (pair.split(":") for pair in kernel.facts["divides"].split())}


def with_divisibility(kernel: Kernel, knob: str, size: int) -> dict[str, str]:
    """The kernel's facts, with one more block size that has to divide a size."""
    divides = divisibility(kernel) | {knob: size}
    return {**kernel.facts, "divides": " ".join(f"{name}:{value}" for name, value in divides.items())}


def elements(kernel: Kernel, knobs: Mapping[str, int] | None = None) -> int:
    """Of one tile."""
    knobs = kernel.knobs if knobs is None else knobs
    _, function = parse(kernel.text)
    total = 1
    for block in BLOCK_OF.values():
        total *= knobs.get(block) or constant(function, block) or 1
    return total


def set_knob(kernel: Kernel, knob: str, value: int) -> Kernel:
    """The kernel with another value for a knob; refused where it cannot run with it, or not right."""
    if knob not in kernel.knobs and knob not in LAUNCH_OPTIONS:
        raise CannotLift(f"{kernel.name} has no knob {knob}")
    if value not in _legal(kernel, knob):
        raise CannotLift(f"{kernel.name}: {knob}={value} is not possible")
    knobs = {**kernel.knobs, knob: value}
    if knob == "maxnreg" and value == 0:
        del knobs[knob]
    if knob.endswith("BLOCK") or knob in ("num_warps", "num_stages"):
        _check_tile(kernel, knobs)
    if knobs.get("maxnreg", 0) * 32 * knobs["num_warps"] > REGISTERS:
        raise CannotLift(
            f"{kernel.name}: {knobs['maxnreg']} registers for each of {knobs['num_warps']} warps"
        )
    changed = replace(kernel, knobs=knobs)
    check_grid(changed)
    return changed


def _legal(kernel: Kernel, knob: str) -> tuple[int, ...]:
    options = {"num_warps": WARPS, "num_stages": STAGES, "maxnreg": REGISTER_LIMITS}
    if knob in options:
        return options[knob]
    if not knob.endswith("BLOCK"):
        raise CannotLift(f"{kernel.name}: {knob} is not a knob that can be turned")
    if kernel.facts["dot"] and knob == "ZBLOCK":
        return (1,)
    axis = next(axis for axis, block in BLOCK_OF.items() if block == knob)
    size = sizes_of(kernel).get(axis)
    most = power_of_2(size) if size else MOST_ELEMENTS
    least = LEAST_OF_PRODUCT if kernel.facts["dot"] else 1
    must_divide = divisibility(kernel).get(knob)
    values = [1 << bits for bits in range(17) if least <= 1 << bits <= max(least, min(most, MOST_ELEMENTS))]
    return tuple(value for value in values if must_divide is None or must_divide % value == 0)


def _check_tile(kernel: Kernel, knobs: Mapping[str, int]) -> None:
    threads = 32 * knobs["num_warps"]
    if kernel.facts["dot"]:
        _check_product(kernel, knobs, threads)
        return
    total = elements(kernel, knobs)
    if total > MOST_ELEMENTS or total > MOST_EACH * threads:
        raise CannotLift(
            f"{kernel.name}: a tile of {total} elements is too large for {knobs['num_warps']} warps"
        )


def _check_product(kernel: Kernel, knobs: Mapping[str, int], threads: int) -> None:
    """Sums have to fit into registers, and what is loaded ahead into shared memory."""
    sums = knobs["XBLOCK"] * knobs["YBLOCK"]
    if sums > MOST_EACH * threads:
        raise CannotLift(f"{kernel.name}: {sums} sums are too many for {knobs['num_warps']} warps")
    widest = (
        max((int(bits) for bits in re.findall(r"=\*[a-z]+(\d+)", kernel.facts["types"])), default=32) // 8
    )
    depth = elements(kernel, knobs) // sums
    ahead = (knobs["XBLOCK"] + knobs["YBLOCK"]) * depth * widest * knobs["num_stages"]
    if ahead > SHARED_BYTES:
        raise CannotLift(f"{kernel.name}: {ahead} bytes in flight do not fit into shared memory")


def knob_actions(kernel: Kernel) -> Iterator[str]:
    """Steps of a knob that may be worth a try, the nearest values first."""
    for knob in ("num_warps", "XBLOCK", "R0_BLOCK", "YBLOCK", "ZBLOCK", "R1_BLOCK"):
        if knob not in kernel.knobs:
            continue
        now = kernel.knobs[knob]
        for step in (2, 4):
            yield f"{knob}={now * step}"
            if now % step == 0:
                yield f"{knob}={now // step}"
    if kernel.facts["dot"]:  # elsewhere it changes nothing: see tl.range's num_stages
        yield from (f"num_stages={stages}" for stages in STAGES if stages != kernel.knobs["num_stages"])
    elif elements(kernel) >= 16 * 32 * kernel.knobs["num_warps"]:
        yield from (
            f"maxnreg={limit}" for limit in REGISTER_LIMITS if limit != kernel.knobs.get("maxnreg", 0)
        )
