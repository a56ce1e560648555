"""Values that a loop computes again and again: taken out of it; divisions by them made multiplications."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from assay.lift.cpp_text import assignment, declaration, loads, names_in, renamed, store
from assay.lift.cpp_tree import Function, If, Lambda, Loop, Node, Statement, map_text, rewrite, texts
from assay.lift.cpp_types import parameter_types, rewrite_typed

_DIVISION = re.compile(r"(?P<before>.* = )(?P<a>\w+) / (?P<b>\w+)")


def hoisted(function: Function) -> Function:
    """What is the same in every iteration is computed before the loop; so is a check of what is the same."""
    number = 0

    def change(node: Node) -> Sequence[Node]:
        nonlocal number
        if not isinstance(node, Loop) or any("omp for" in pragma for pragma in node.pragmas):
            return (node,)
        moved, kept = _invariant(node)
        if not moved:
            return (node,)
        names: dict[str, str] = {}
        for one in moved:
            if isinstance(one, Statement) and (made := declaration(one.text)):
                names[made.name] = f"held{number}"
                number += 1
        before = map_text(moved, lambda text: renamed(text, names))
        body = map_text(kept, lambda text: renamed(text, names))
        loop = replace(node, body=body)
        checks = [one for one in before if isinstance(one, If)]
        if not checks:
            return (*before, loop)
        return _guarded([*before], loop)

    return replace(function, body=rewrite(function.body, change))


def _guarded(before: list[Node], loop: Loop) -> Sequence[Node]:
    """The loop behind its check: where that fails, no iteration would have done anything."""
    for k, node in enumerate(before):
        if isinstance(node, If):
            bad = tuple(one for one in node.body if one != Statement("continue"))
            return (*before[:k], replace(node, body=bad, otherwise=tuple(_guarded(before[k + 1 :], loop))))
    return (*before, loop)


def _invariant(loop: Loop) -> tuple[list[Node], list[Node]]:
    """(what can move in front of the loop, what stays), in order."""
    written = {one.pointer for text in texts(loop.body) if (one := store(text))}
    changed = {found[0] for text in texts(loop.body) if (found := assignment(text))}
    changed |= {word for text in texts(loop.body) for word in re.findall(r"(\w+)\.(?:merge|add)\(", text)}
    varying = {loop.var} | changed | {one.name for text in texts(loop.body) if (one := declaration(text))}
    written |= {pointer for text in texts(loop.body) if "atomic_add(" in text for pointer, _ in loads(text)}
    varying |= {node.name for node in loop.body if isinstance(node, Lambda)}
    moved: list[Node] = []
    kept: list[Node] = []
    blocked = False
    for node in loop.body:
        one = declaration(node.text) if isinstance(node, Statement) else None
        if not blocked and (one is None or one.name not in changed) and _can_move(node, varying, written):
            moved.append(node)
            if one is not None:
                varying.discard(one.name)
            continue
        kept.append(node)
        # Behind a check that stays, loads may be of places that do not exist.
        blocked = blocked or isinstance(node, If)
    return moved, kept


def _can_move(node: Node, varying: set[str], written: set[str]) -> bool:
    if isinstance(node, If):
        return node.body[-1:] == (Statement("continue"),) and not varying & names_in(node.condition)
    if (
        not isinstance(node, Statement)
        or (one := declaration(node.text)) is None
        or not one.rest.startswith("= ")
    ):
        return False
    if "&" in one.rest and "frexp" in one.rest:
        return False
    read = {pointer for pointer, _ in loads(one.rest)}
    return not (names_in(one.rest) & varying) and not (read & written)


def with_reciprocals(function: Function) -> Function:
    """Division by what is the same in every iteration, as multiplication: one unit of the last place."""

    def change(node: Node, types: Mapping[str, str]) -> Sequence[Node]:
        if not isinstance(node, Loop) or any(isinstance(one, Loop) for one in node.body):
            return (node,)
        if any("omp for" in pragma for pragma in node.pragmas):
            return (node,)
        declared = {one.name for text in texts(node.body) if (one := declaration(text))}
        before: dict[str, Statement] = {}
        body: list[Node] = []
        for one in node.body:
            found = _DIVISION.fullmatch(one.text) if isinstance(one, Statement) else None
            if found is None or found["b"] in declared or types.get(found["b"]) != "float":
                body.append(one)
                continue
            inverse = f"{found['b']}_inverse"
            before[inverse] = Statement(f"const float {inverse} = 1.0f / {found['b']}")
            body.append(Statement(f"{found['before']}{found['a']} * {inverse}"))
        return (*before.values(), replace(node, body=tuple(body)))

    return replace(function, body=rewrite_typed(function.body, parameter_types(function), change))
