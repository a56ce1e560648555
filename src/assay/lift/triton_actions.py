"""Typed actions on a lifted Triton problem: which there are, and what each gives.

An action is a short text, "softmax_0:XBLOCK=4": the kernel, and what is done to it. Each one keeps what the
kernel computes, up to the order of sums and the last bits, or is refused. A list of actions can be carried
out again, in its order, and with one of them left out where the others do not need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from assay.lift.record import CannotLift, Kernel, Lifted
from assay.lift.triton_arithmetic import arithmetic_actions, fast_exp, fast_tanh, reciprocal
from assay.lift.triton_buffers import Overlap, overlaps
from assay.lift.triton_folding import fold, fold_actions
from assay.lift.triton_fusion import fuse_next
from assay.lift.triton_knobs import MOST_ELEMENTS, knob_actions, set_knob, sizes_of
from assay.lift.triton_launch import print_triton
from assay.lift.triton_loops import (
    few_programs,
    grid_actions,
    group_programs,
    loop_actions,
    set_loop,
    swap_grid,
)
from assay.lift.triton_memory import mask_actions, memory_actions, set_policy, unmask
from assay.lift.triton_rows import hold_rows
from assay.lift.triton_syntax import loops, parse

WALKED = ("unmask=XBLOCK", "unmask=YBLOCK", "unmask=R0_BLOCK", "fold=4", "group=8")
HELD = ("fuse_next", "persistent", *WALKED)
_PLAIN: dict[str, Callable[[Kernel], Kernel]] = {
    "swap_grid": swap_grid,
    "fast_exp": fast_exp,
    "fast_tanh": fast_tanh,
    "reciprocal": reciprocal,
}


def available(lifted: Lifted) -> tuple[str, ...]:
    """The actions that are possible now and change something, those with the largest effects first."""
    found: list[str] = []
    for kernel in lifted.kernels:
        for word in _words(kernel):
            action = f"{kernel.name}:{word}"
            if action not in found and _changes(lifted, action):
                found.append(action)
    return tuple(found)


def _words(kernel: Kernel) -> Iterator[str]:
    yield "fuse_next"
    yield "persistent"
    yield from fold_actions(kernel)
    yield from arithmetic_actions(kernel)
    yield from mask_actions(kernel)
    yield from knob_actions(kernel)
    yield from loop_actions(kernel)
    yield from grid_actions(kernel)
    yield from memory_actions(kernel)


def usual(lifted: Lifted) -> tuple[tuple[str, ...], ...]:
    """Lists of actions that nearly always pay, each in the order in which they are to be carried out.

    Rows are held in registers where they fit. A running softmax may be faster all the same: that is a list of
    its own.
    """
    held, walked = _those_that_pay(lifted, HELD), _those_that_pay(lifted, WALKED)
    has_two = held != walked and any("fold=" in action for action in walked)
    return tuple(one for one in (held, walked if has_two else ()) if one)


def _those_that_pay(lifted: Lifted, words: tuple[str, ...]) -> tuple[str, ...]:
    done: list[str] = []
    for word in words:
        for name in [kernel.name for kernel in lifted.kernels]:
            kernel = next((kernel for kernel in lifted.kernels if kernel.name == name), None)
            action = f"{name}:{word}"
            if kernel is not None and _pays(kernel, word) and _changes(lifted, action):
                lifted = apply(lifted, action)
                done.append(action)
    return tuple(done)


def _pays(kernel: Kernel, word: str) -> bool:
    sizes = sizes_of(kernel)
    if word == "fuse_next":  # afterwards a program has a whole row: there must be enough of them
        return sizes.get("x", 0) >= 2 * int(kernel.facts["processors"])
    if word == "persistent":
        return len(loops(parse(kernel.text)[1])) > 1 and sizes.get("r0_", MOST_ELEMENTS) <= MOST_ELEMENTS // 2
    return not word.startswith("group") or bool(kernel.facts["dot"])


def _changes(lifted: Lifted, action: str) -> bool:
    try:
        return apply(lifted, action) != lifted
    except CannotLift:
        return False


def apply(lifted: Lifted, action: str) -> Lifted:
    """The problem after one action.

    Raises:
        CannotLift: there is no such kernel or action, or it would change what is computed.
    """
    name, colon, word = action.partition(":")
    kernel = next((kernel for kernel in lifted.kernels if kernel.name == name), None)
    if kernel is None or not colon:
        raise CannotLift(f"no kernel is meant by {action}")
    if word == "fuse_next":
        changed = fuse_next(lifted, kernel)
    else:
        after = _changed(kernel, word, overlaps(lifted, name))
        kernels = tuple(after if each is kernel else each for each in lifted.kernels)
        changed = replace(lifted, kernels=kernels)
    print_triton(changed)
    return changed


def _changed(kernel: Kernel, word: str, overlap: Overlap) -> Kernel:
    what, _, value = word.partition("=")
    if word in _PLAIN:
        return _PLAIN[word](kernel)
    if word == "persistent":
        return hold_rows(kernel, overlap)
    if what == "unmask":
        return unmask(kernel, value)
    if what == "fold":
        return fold(kernel, _number(word, value))
    if what == "programs":
        return few_programs(kernel, _number(word, value))
    if what == "group":
        return group_programs(kernel, _number(word, value))
    if what.startswith(("pipeline[", "unroll[", "flatten[")):
        return set_loop(kernel, what, value, overlap)
    if what.endswith("]"):
        return set_policy(kernel, what, value)
    return set_knob(kernel, what, _number(word, value))


def _number(word: str, value: str) -> int:
    if not value.isdigit():
        raise CannotLift(f"{word} is no action: a number belongs behind the sign")
    return int(value)
