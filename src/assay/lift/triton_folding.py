"""A running softmax that takes several values of a lane at once.

With every single value it takes two exponentials. Several values of one lane have their maximum first, which
costs little; then each of them takes one, and the running sum one more for all of them. The tile is cut so
that a thread finds these values among its own. Results may differ in the last bits.

Not covered: running means (Triton moves their number of values through shared memory in every turn).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from assay.lift.record import CannotLift, Kernel
from assay.lift.triton_knobs import set_knob, sizes_of
from assay.lift.triton_launch import power_of_2
from assay.lift.triton_syntax import loops, parse, simple_target, statement, text_of, tl_name, unparse

FOLDS = (2, 4, 8)
STEP, FOLD, FAST = "softmax_step", "softmax_fold", "_fast"
TILE = "[XBLOCK, R0_BLOCK]"
LEAST_LANES = 32
VECTOR_BITS = 128
_COUNT = re.compile(rf"({FOLD}(?:{FAST})?\(.*, )\d+\)$", re.MULTILINE)
"""The number at the end of such a call."""


def fold_actions(kernel: Kernel) -> Iterator[str]:
    if "R0_BLOCK" in kernel.knobs and (STEP in kernel.text or FOLD in kernel.text):
        yield from (f"fold={count}" for count in FOLDS)


def fold(kernel: Kernel, count: int) -> Kernel:
    """The kernel with `count` values of a lane taken together."""
    if count not in FOLDS:
        raise CannotLift(f"fold is one of {FOLDS}, not {count}")
    if "R0_BLOCK" not in kernel.knobs:
        raise CannotLift(f"{kernel.name} does not walk along rows in a loop")
    if FOLD in kernel.text:
        text = re.sub(r"R0_BLOCK // \d+", f"R0_BLOCK // {count}", kernel.text)
        return _with_room(replace(kernel, text=_COUNT.sub(rf"\g<1>{count})", text)), count)
    tree, function = parse(kernel.text)
    found = [(loop, node) for loop in loops(function) for node in loop.body if _is_step(node)]
    if not found:
        raise CannotLift(f"{kernel.name} has no running softmax in a loop")
    for loop, node in found:
        assert isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        running, value = [text_of(one) for one in node.value.args[:2]], text_of(node.value.args[2])
        mask = _take_updates(kernel, loop, running)
        for name in running:
            _narrow(kernel, function, name, count)
        name = text_of(node.value.func).replace(STEP, FOLD)
        masked = f"tl.where({mask}, {value}, float('-inf'))" if mask else value
        folded = statement(f"{', '.join(running)} = {name}({', '.join([*running, masked, str(count)])})")
        loop.body[loop.body.index(node)] = folded
    return _with_room(replace(kernel, text=unparse(tree)), count)


def _is_step(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and text_of(node.value.func).removesuffix(FAST) == STEP
    )


def _take_updates(kernel: Kernel, loop: ast.For, running: list[str]) -> str:
    """Removes `top = tl.where(mask, top_next, top)` or `top = top_next` of each; returns the mask."""
    masks: set[str] = set()
    for name in running:
        update = next((node for node in loop.body if simple_target(node) == name), None)
        if not isinstance(update, ast.Assign):
            raise CannotLift(f"{kernel.name}: {name} does not run along")
        value, mask = update.value, ""
        if isinstance(value, ast.Call) and tl_name(value) == "where" and text_of(value.args[2]) == name:
            value, mask = value.args[1], text_of(value.args[0])
        if not isinstance(value, ast.Name):
            raise CannotLift(f"{kernel.name}: {name} becomes {text_of(value)}")
        masks.add(mask)
        loop.body.remove(update)
    if len(masks) != 1:
        raise CannotLift(f"{kernel.name}: a running softmax under several masks")
    return masks.pop()


def _narrow(kernel: Kernel, function: ast.FunctionDef, name: str, count: int) -> None:
    """The running value of fewer lanes."""
    start = next((node for node in function.body if simple_target(node) == name), None)
    value = start.value if isinstance(start, ast.Assign) else None
    if not isinstance(value, ast.Call) or text_of(value.args[0]) != TILE:
        raise CannotLift(f"{kernel.name}: {name} does not begin as a tile")
    if sum(isinstance(node, ast.Name) and node.id == name for node in ast.walk(function)) > 3:
        # Beyond its beginning, its step and where the lanes are joined.
        raise CannotLift(f"{kernel.name}: {name} is read elsewhere, too")
    value.args[0] = ast.parse(f"[XBLOCK, R0_BLOCK // {count}]", mode="eval").body


def _with_room(kernel: Kernel, count: int) -> Kernel:
    """A tile in which every thread has its values of all parts, loaded as widely as can be."""
    knobs, row = kernel.knobs, sizes_of(kernel).get("r0_")
    bits = [int(size) for size in re.findall(r"=\*(?:fp|bf|i|u)(\d+)", kernel.facts["types"])]
    each = VECTOR_BITS // min((size for size in bits if size >= 8), default=32)
    wanted = knobs["R0_BLOCK"]
    if knobs.get("XBLOCK", 1) == 1:
        wanted = count * 32 * knobs["num_warps"] * each
    wanted = min(wanted, power_of_2(row)) if row is not None else wanted
    if wanted // count < LEAST_LANES:
        raise CannotLift(f"{kernel.name}: rows are too short to be folded")
    return set_knob(kernel, "R0_BLOCK", wanted) if wanted != knobs["R0_BLOCK"] else kernel
