"""Typed actions on a lifted C++ problem: each a short string that can be carried out again.

An action keeps what is computed; some change the order of additions or the last bit of a quotient. `usual`
lists those that nearly always pay, in the order in which they are to be carried out. An action with a value
("strip=256") is a setting: another value is another candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from assay.lift.cpp_buffers import (
    kept_in_kernel,
    kept_in_variables,
    with_functions,
    with_huge_pages,
    with_restrict,
)
from assay.lift.cpp_halves import with_half_blocks
from assay.lift.cpp_library import EXTRA_FLAGS
from assay.lift.cpp_loops import in_tiles, on_one_thread, parallel_above, scheduled, with_private_parameters
from assay.lift.cpp_math import QUICK
from assay.lift.cpp_simd import in_chunks, simd, with_lanes
from assay.lift.cpp_strips import in_strips
from assay.lift.cpp_tree import Function, Node, map_text, rewrite
from assay.lift.cpp_values import hoisted, with_reciprocals
from assay.lift.record import CannotLift, Lifted

DONE = "done"
"""The pragma that lists what was carried out: nothing is done twice."""


def _of_functions(change: Callable[[Function], Function]) -> Callable[[Lifted], Lifted]:
    return lambda lifted: with_functions(lifted, change)


def _of_nodes(change: Callable[[Node], tuple[Node, ...] | list[Node]]) -> Callable[[Lifted], Lifted]:
    return _of_functions(lambda function: replace(function, body=rewrite(function.body, change)))


def _flag(flag: str) -> Callable[[Lifted], Lifted]:
    def change(lifted: Lifted) -> Lifted:
        if not lifted.kernels:
            return lifted
        flags = f"{lifted.pragmas.get(EXTRA_FLAGS, '')} {flag}".strip()
        return replace(lifted, pragmas={**lifted.pragmas, EXTRA_FLAGS: flags})

    return change


def _quick(text: str) -> str:
    for slow, quick in QUICK.items():
        text = text.replace(f"{slow}(", f"{quick}(")
    return text


_PLAIN: Mapping[str, Callable[[Lifted], Lifted]] = {
    "keep_row": kept_in_variables,
    "hoist": _of_functions(hoisted),
    "reciprocal": _of_functions(with_reciprocals),
    "vector_math": _of_functions(lambda f: replace(f, body=map_text(f.body, _quick))),
    "simd": _of_nodes(lambda node: tuple(simd(node))),
    "own_scratch": kept_in_kernel,
    "restrict": with_restrict,
    "private": _of_functions(with_private_parameters),
    "half_blocks": _of_functions(with_half_blocks),
    "huge_pages": with_huge_pages,
    "unroll": _flag("-funroll-loops"),
    "contract": _flag("-ffp-contract=fast"),
}
_SETTINGS: Mapping[str, tuple[Callable[[str], Callable[[Lifted], Lifted]], tuple[str, ...]]] = {
    "strip": (lambda v: _of_nodes(lambda node: tuple(in_strips(node, int(v)))), ("256", "64", "1024")),
    "chunk": (lambda v: _of_nodes(lambda node: tuple(in_chunks(node, int(v)))), ("4096", "1024", "32768")),
    "tile": (lambda v: _of_nodes(lambda node: tuple(in_tiles(node, int(v)))), ("32", "16", "64")),
    "simd_reductions": (
        lambda v: _of_functions(lambda f: replace(f, body=with_lanes(f.body, int(v)))),
        ("16", "8", "32"),
    ),
    "threads": (lambda v: _of_functions(on_one_thread), ("1",)),
    "parallel_above": (
        lambda v: _of_functions(lambda f: parallel_above(f, int(v))),
        ("32768", "8192", "262144"),
    ),
    "schedule": (
        lambda v: _of_functions(lambda f: scheduled(f, v)),
        ("static,1", "static,16", "dynamic,1", "guided"),
    ),
}
_USUAL = (
    "chunk=4096",
    "keep_row",
    "strip=256",
    "tile=32",
    "hoist",
    "vector_math",
    "simd_reductions=16",
    "half_blocks",
    "simd",
    "own_scratch",
    "restrict",
    "private",
    "parallel_above=32768",
)
_ORDER = (*_USUAL, "reciprocal", "huge_pages", "unroll", "contract")


def available(lifted: Lifted) -> tuple[str, ...]:
    """The actions that change something, those with the greatest effect first."""
    settings = [f"{key}={value}" for key, (_, values) in _SETTINGS.items() for value in values]
    found: list[str] = []
    for action in dict.fromkeys((*_ORDER, *settings)):
        try:
            apply(lifted, action)
        except CannotLift:
            continue
        found.append(action)
    return tuple(found)


def usual(lifted: Lifted) -> tuple[tuple[str, ...], ...]:
    """One list of actions that nearly always pay, in order; those that change nothing are left out."""
    done: list[str] = []
    for action in _USUAL:
        try:
            lifted = apply(lifted, action)
        except CannotLift:
            continue
        done.append(action)
    return (tuple(done),) if done else ()


def apply(lifted: Lifted, action: str) -> Lifted:
    """Carry out one action.

    Raises:
        CannotLift: there is no such action, it was carried out before, or it changes nothing here.
    """
    key, is_setting, value = action.partition("=")
    done = lifted.pragmas.get(DONE, "").split()
    if key in done:
        raise CannotLift(f"{key} was carried out before")
    if is_setting and key in _SETTINGS and value in _SETTINGS[key][1]:
        changed = _SETTINGS[key][0](value)(lifted)
    elif not is_setting and key in _PLAIN:
        changed = _PLAIN[key](lifted)
    else:
        raise CannotLift(f"no action {action} for C++")
    if changed == lifted:
        raise CannotLift(f"{action} changes nothing here")
    return replace(changed, pragmas={**changed.pragmas, DONE: " ".join((*done, key))})
