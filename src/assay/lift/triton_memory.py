"""Actions on the loads and stores of a lifted kernel: what caches are told, masks that are always true."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from assay.lift.record import CannotLift, Kernel
from assay.lift.triton_knobs import divisibility, sizes_of, with_divisibility
from assay.lift.triton_syntax import (
    BLOCK_OF,
    CallRewrite,
    Substitution,
    argument,
    assignment_counts,
    blocks,
    calls,
    drop_unused,
    names_in,
    parse,
    set_keyword,
    simple_target,
    text_of,
    tl_name,
    unparse,
)

EVICTION = ("evict_first", "evict_last", "none")
LOAD_CACHE = (".cg", "none")
STORE_CACHE = (".cs", ".cg", "none")
EACH_UP_TO = 6
"""Loads and stores that are offered one by one; a kernel with more of them has those for all at once."""
ALWAYS = ast.parse("tl.full([1, 1], True, tl.int1)", mode="eval").body
PLACE = re.compile(r"(evict|cache|store_evict|store_cache)\[(\d+|\*)\]")


def memory_actions(kernel: Kernel) -> Iterator[str]:
    _, function = parse(kernel.text)
    for prefix, kind, caches in (("", "load", LOAD_CACHE), ("store_", "store", STORE_CACHE)):
        places = calls(function, kind)
        if kernel.facts["dot"] and kind == "load":
            continue  # tiles of matrices are copied to shared memory, past these policies
        names = ["*"] if len(places) > 1 else []
        names += [str(place) for place in range(len(places))] if len(places) <= EACH_UP_TO else []
        for name in names:
            yield from (f"{prefix}evict[{name}]={policy}" for policy in EVICTION)
        for name in names[:1] if names else []:
            yield from (f"{prefix}cache[{name}]={modifier}" for modifier in caches)


def set_policy(kernel: Kernel, word: str, value: str) -> Kernel:
    """`evict[2]=evict_first`, `cache[*]=.cg`, and `store_evict`, `store_cache` for stores.

    A load has one of both: PTX has no eviction policy beside a cache operator.
    """
    found = PLACE.fullmatch(word)
    if found is None:
        raise CannotLift(f"no load or store is meant by {word}")
    kind = "store" if found[1].startswith("store_") else "load"
    is_cache = found[1].endswith("cache")
    allowed = (LOAD_CACHE if kind == "load" else STORE_CACHE) if is_cache else EVICTION
    if value not in allowed:
        raise CannotLift(f"{word} is one of {', '.join(allowed)}, not {value}")
    tree, function = parse(kernel.text)
    places = calls(function, kind)
    if found[2] != "*" and int(found[2]) >= len(places):
        raise CannotLift(f"{kernel.name} has {len(places)} {kind}s")
    for call in places if found[2] == "*" else [places[int(found[2])]]:
        mine, others = ("cache_modifier", "eviction_policy")[:: 1 if is_cache else -1]
        set_keyword(call, mine, None if value == "none" else ast.Constant(value))
        if value != "none":
            set_keyword(call, others, None)
    return replace(kernel, text=unparse(tree))


def mask_actions(kernel: Kernel) -> Iterator[str]:
    for axis, block in BLOCK_OF.items():
        if f"{axis}mask" in kernel.text and block in kernel.knobs:
            yield f"unmask={block}"


def unmask(kernel: Kernel, block: str) -> Kernel:
    """Leaves a mask out that is true everywhere: the block size divides the number of elements.

    From then on it has to: block sizes that do not are refused.
    """
    axis = next((axis for axis, name in BLOCK_OF.items() if name == block), None)
    size = sizes_of(kernel).get(axis or "")
    tree, function = parse(kernel.text)
    if axis is None or size is None or f"{axis}mask" not in names_in(function):
        raise CannotLift(f"{kernel.name} has no mask for {block}")
    if block in divisibility(kernel) or size % kernel.knobs.get(block, size + 1):
        raise CannotLift(f"{kernel.name}: {block} does not divide {size}")
    if block == "YBLOCK" and len(kernel.grid) == 3 and "z" not in sizes_of(kernel):
        raise CannotLift(f"{kernel.name} may have more programs along y than there are tiles")
    remove_mask(function, f"{axis}mask")
    return replace(kernel, text=unparse(tree), facts=with_divisibility(kernel, block, size))


def remove_mask(function: ast.FunctionDef, mask: str) -> None:
    """Takes a mask for true everywhere, in place."""
    for block in blocks(function):
        block[:] = [n for n in block if not (isinstance(n, ast.Assign) and text_of(n.targets[0]) == mask)]
    CallRewrite(lambda call: _without_mask(call, mask)).visit(function)
    if mask in names_in(function):
        raise CannotLift(f"{mask} is used for more than loads, stores and choices")
    forward_copies(function)
    drop_unused(function)


def _without_mask(call: ast.Call, mask: str) -> ast.expr:
    name = tl_name(call)
    if name == "where":
        left = _reduced(call.args[0], mask)
        if left is None:
            return call.args[1]
        call.args[0] = left
    elif name in ("load", "store", "atomic_add"):
        position = 1 if name == "load" else 2
        given = argument(call, position, "mask")
        left = _reduced(given, mask) if given is not None else None
        if given is not None:
            set_keyword(call, "mask", None)
            call.args[position:] = [left if left is not None else ast.Constant(None)]
        if left is None and name == "load":
            set_keyword(call, "other", None)
    elif not name:
        call.args = [_reduced(arg, mask) or ALWAYS if mask in names_in(arg) else arg for arg in call.args]
    return call


def _reduced(condition: ast.expr, mask: str) -> ast.expr | None:
    """A conjunction without one of its parts; None where nothing is left of it."""
    if isinstance(condition, ast.Name) and condition.id == mask:
        return None
    if isinstance(condition, ast.Constant) and condition.value is None:
        return None
    if isinstance(condition, ast.BinOp) and isinstance(condition.op, ast.BitAnd):
        left, right = _reduced(condition.left, mask), _reduced(condition.right, mask)
        if left is None or right is None:
            return left or right
        return ast.BinOp(left, ast.BitAnd(), right)
    return condition


def forward_copies(function: ast.FunctionDef) -> None:
    """`_acc = tmp7` right after `tmp7 = ...` takes the value itself; other copies are their original."""
    counts = assignment_counts(function)
    uses = Counter(node.id for node in ast.walk(function) if isinstance(node, ast.Name))
    same: dict[str, ast.expr] = {}
    for block in blocks(function):
        for place in range(len(block) - 1, -1, -1):
            copy, source = block[place], block[place - 1]
            name = simple_target(copy)
            if name is None or not (isinstance(copy, ast.Assign) and isinstance(copy.value, ast.Name)):
                continue
            original = copy.value.id
            is_next = place > 0 and simple_target(source) == original and uses[original] == 2
            if is_next and counts[original] == 1 and isinstance(source, ast.Assign):
                source.targets = copy.targets
                del block[place]
            elif counts[name] == counts[original] == 1:
                same[name] = copy.value
    Substitution({name: _origin(name, same) for name in same}).visit(function)


def _origin(name: str, same: Mapping[str, ast.expr]) -> ast.expr:
    value = same[name]
    while isinstance(value, ast.Name) and value.id in same:
        value = same[value.id]
    return value
