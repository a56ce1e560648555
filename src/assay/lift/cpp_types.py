"""What type a C++ expression of a kernel has, where that can be told from the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from assay.lift.cpp_text import declaration, split_arguments
from assay.lift.cpp_tree import Function, If, Node, Statement, closing

_KIND = r"(float|double|half|bfloat16|float8_e4m3fn|float8_e5m2|bool|u?int(?:8|16|32|64)_t)"
_CAST = re.compile(rf"(?:as<)?{_KIND}>?\(")
_CALL = re.compile(r"(?:std::\w+|quick_\w+|larger|smaller)\(")
_NUMBER = re.compile(r"-?\d+(\.\d*)?(e[-+]?\d+)?")
_FLOATS = ("double", "float")


def parameter_types(function: Function) -> dict[str, str]:
    return {
        one.name: one.type.replace("const ", "").replace("__restrict", "").strip()
        for one in function.parameters
    }


def rewrite_typed(
    nodes: Sequence[Node],
    known: Mapping[str, str],
    change: Callable[[Node, Mapping[str, str]], Sequence[Node]],
) -> tuple[Node, ...]:
    """The tree with every node replaced, inner ones first, by what `change` makes of it.

    `change` is told the types of the names that are known where the node stands; those it cannot tell are "".
    """
    types = dict(known)
    made: list[Node] = []
    for node in nodes:
        before = dict(types)
        if isinstance(node, Statement):
            if one := declaration(node.text):
                kind = one.type if one.type != "auto" else type_of(one.rest.removeprefix("= "), types)
                types[one.name] = kind or ""
        else:
            node = replace(node, body=rewrite_typed(node.body, types, change))
            if isinstance(node, If) and node.otherwise:
                node = replace(node, otherwise=rewrite_typed(node.otherwise, types, change))
        made += change(node, before)
    return tuple(made)


def type_of(text: str, known: Mapping[str, str]) -> str | None:
    """The type of an expression; None where it cannot be told."""
    text = text.strip()
    if cast := _CAST.match(text):
        return cast[1] if closing(text, cast.end() - 1) == len(text) - 1 else _of_parts(text, known)
    if (call := _CALL.match(text)) and closing(text, call.end() - 1) == len(text) - 1:
        return _common([type_of(one, known) for one in split_arguments(text[call.end() : -1])])
    if access := re.match(r"(\w+)\[", text):
        if closing(text, access.end() - 1) == len(text) - 1:
            return known.get(access[1], "").removesuffix("*").strip() or None
        return _of_parts(text, known)
    if text.isidentifier():
        return known.get(text)
    if number := _NUMBER.fullmatch(text):
        return "double" if number[1] or number[2] else "int"
    return _of_parts(text, known)


def _of_parts(text: str, known: Mapping[str, str]) -> str | None:
    """Of an expression with one operator."""
    if choice := re.fullmatch(r"\w+ \? (\S+) : (\S+)", text):
        return _common([type_of(choice[1], known), type_of(choice[2], known)])
    if operation := re.fullmatch(r"(\S+) [-+*/] (\S+(?:\(\w+\))?)", text):
        return _common([type_of(operation[1], known), type_of(operation[2], known)])
    return None


def _common(kinds: Sequence[str | None]) -> str | None:
    if None in kinds:
        return None
    for wide in _FLOATS:
        if wide in kinds:
            return wide
    return kinds[0] if len(set(kinds)) == 1 else None
