"""What type a C++ expression of a kernel has, where that can be told from the text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from assay.lift.cpp_text import declaration, split_arguments
from assay.lift.cpp_tree import Function, Statement, closing, walk

_KIND = r"(float|double|half|bfloat16|float8_e4m3fn|float8_e5m2|bool|u?int(?:8|16|32|64)_t)"
_CAST = re.compile(rf"(?:as<)?{_KIND}>?\(")
_CALL = re.compile(r"(?:std::\w+|quick_\w+|larger|smaller)\(")
_NUMBER = re.compile(r"-?\d+(\.\d*)?(e[-+]?\d+)?")
_FLOATS = ("double", "float")


def types_of(function: Function) -> dict[str, str]:
    """The type of every name that is declared; names that stand for two types, and unknown ones, are left out."""
    known = {one.name: one.type.replace("const ", "").replace("__restrict", "").strip() for one in function.parameters}
    found: dict[str, set[str]] = {}
    for node in walk(function.body):
        if not isinstance(node, Statement) or (one := declaration(node.text)) is None:
            continue
        kind = one.type if one.type != "auto" else type_of(one.rest.removeprefix("= "), known)
        found.setdefault(one.name, set()).add(kind or "")
        known[one.name] = kind or ""
    return {name: kind for name, kind in known.items() if kind and len(found.get(name, ("",))) == 1}


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
