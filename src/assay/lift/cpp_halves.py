"""Stores of sixteen-bit floating-point numbers, a block at a time.

GCC vectorises no conversion to that type. Results of a block are kept as float, in a loop that vectorises,
and converted together by the processor's own instruction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from assay.lift.cpp_simd import is_independent, is_innermost
from assay.lift.cpp_strips import has_unit_step
from assay.lift.cpp_text import declaration, names_in, renamed, store
from assay.lift.cpp_tree import Function, Loop, Node, Statement, texts
from assay.lift.cpp_types import parameter_types, rewrite_typed

BLOCK = 16
_NARROWED = re.compile(r"as<half>\((?P<value>\w+)\)")


def with_half_blocks(function: Function) -> Function:
    return replace(function, body=rewrite_typed(function.body, parameter_types(function), _in_blocks))


def _in_blocks(node: Node, types: Mapping[str, str]) -> Sequence[Node]:
    if not isinstance(node, Loop) or not is_innermost(node) or not is_independent(node) or node.step != "1":
        return (node,)
    if any("omp" in pragma for pragma in node.pragmas):
        return (node,)
    stores = {
        k: one
        for k, text in enumerate(_statements(node))
        if (one := store(text)) and _is_half(one.pointer, types)
    }
    values = {k: _wide_value(one.value, node) for k, one in stores.items()}
    if (
        not stores
        or not all(values.values())
        or not all(_is_dense(one.index, node.var) for one in stores.values())
    ):
        return (node,)
    block, whole = f"{node.var}_block", f"{node.var}_whole"
    body: list[Node] = []
    after: list[Node] = []
    before: list[Node] = []
    for k, one in enumerate(node.body):
        if k not in stores:
            body.append(one)
            continue
        wide = f"{stores[k].pointer}_wide{k}"
        before.append(Statement(f"float {wide}[{BLOCK}]"))
        body.append(Statement(f"{wide}[lane] = {values[k]}"))
        place = renamed(stores[k].index, {node.var: block})
        after.append(Statement(f"store_halves(&{stores[k].pointer}[{place}], {wide}, {BLOCK})"))
    here = Statement(f"const int64_t {node.var} = {block} + lane")
    inner = Loop("lane", "0", str(BLOCK), "1", (here, *_without_unused(body)))
    end = f"{node.start} + ({node.stop} - {node.start}) / {BLOCK} * {BLOCK}"
    return (
        Statement(f"const int64_t {whole} = {end}"),
        Loop(block, node.start, whole, str(BLOCK), (*before, inner, *after)),
        replace(node, start=whole, pragmas=()),
    )


def _statements(loop: Loop) -> list[str]:
    return [node.text if isinstance(node, Statement) else "" for node in loop.body]


def _is_half(pointer: str, types: Mapping[str, str]) -> bool:
    return types.get(pointer) == "half*"


def _wide_value(value: str, loop: Loop) -> str:
    """The float that a half is made of; empty where there is none."""
    if found := _NARROWED.fullmatch(value):
        return found["value"]
    for text in _statements(loop):
        if (one := declaration(text)) and one.name == value and (found := _NARROWED.fullmatch(one.rest[2:])):
            return found["value"]
    return ""


def _is_dense(index: str, var: str) -> bool:
    return has_unit_step(index, var) and len(re.findall(rf"\b{var}\b", index)) == 1


def _without_unused(nodes: Sequence[Node]) -> list[Node]:
    """Without conversions that nothing reads any more."""
    kept: list[Node] = []
    for k, node in enumerate(nodes):
        one = declaration(node.text) if isinstance(node, Statement) else None
        later = {name for text in texts(nodes[k + 1 :]) for name in names_in(text)}
        if one is None or one.name in later or "as<half>" not in one.rest:
            kept.append(node)
    return kept
