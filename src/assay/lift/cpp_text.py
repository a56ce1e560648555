"""C++ expressions as text: calls found by name, names replaced, casts written short."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from assay.lift.cpp_tree import closing

WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*\b")
_DECLARATION = re.compile(
    r"(?:static )?(?P<const>const )?(?P<type>(?!return\b|else\b)[A-Za-z_][\w:]*(?:<[^;=]*?>)?(?:\s*\*)?)\s+"
    r"(?P<name>[A-Za-z_]\w*)\s*(?P<rest>[=({\[].*)?$"
)
_STORE = re.compile(r"(?P<pointer>[A-Za-z_]\w*)\[(?P<index>.*)\] (?P<how>\+?=) (?P<value>[^=].*)$")
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*) = (?P<value>[^=].*)$")


@dataclass(frozen=True, slots=True)
class Declaration:
    """`float total = 0`: type, name and what follows the name."""

    type: str
    name: str
    rest: str


@dataclass(frozen=True, slots=True)
class Store:
    """`out[i] = value`."""

    pointer: str
    index: str
    value: str
    adds: bool = False


def declaration(text: str) -> Declaration | None:
    found = _DECLARATION.fullmatch(text)
    if found is None:
        return None
    return Declaration(found["type"], found["name"], found["rest"] or "")


def store(text: str) -> Store | None:
    """The store that a statement is, if it is one."""
    found = _STORE.fullmatch(text)
    if found is None or closing(text, found.start("index") - 1) != found.end("index"):
        return None
    return Store(found["pointer"], found["index"], found["value"], found["how"] == "+=")


def assignment(text: str) -> tuple[str, str] | None:
    """(name, value) of `name = value`."""
    found = _ASSIGNMENT.fullmatch(text)
    return (found["name"], found["value"]) if found else None


def names_in(text: str) -> set[str]:
    """Names that are read or written, members of others left out."""
    return set(WORD.findall(text))


def renamed(text: str, names: Mapping[str, str]) -> str:
    """The text with whole names replaced."""
    return WORD.sub(lambda found: names.get(found[0], found[0]), text)


def loads(text: str) -> Iterator[tuple[str, str]]:
    """(pointer, index) of every `pointer[index]`, those of a store's target among them."""
    for found in re.finditer(r"\b([A-Za-z_]\w*)\[", text):
        end = closing(text, found.end() - 1)
        yield found[1], text[found.end() : end]


@dataclass(frozen=True, slots=True)
class Call:
    """One call in a text: what names the function, its arguments, and what stands around it."""

    function: re.Match[str]
    arguments: str
    before: str
    after: str

    @property
    def stands_alone(self) -> bool:
        """Nothing beside it could bind more tightly than what is inside."""
        before, after = self.before.rstrip(), self.after.lstrip()
        return (not before or before[-1] in "[(,=") and (not after or after[0] in "]),;")


def replace_calls(text: str, function: re.Pattern[str], change: Callable[[Call], str]) -> str:
    """The text with every call replaced, inner ones first; the pattern matches up to the parenthesis."""
    made: list[str] = []
    at = 0
    while (found := function.search(text, at)) is not None:
        if text[found.end() : found.end() + 1] != "(":
            made.append(text[at : found.end()])
            at = found.end()
            continue
        end = closing(text, found.end())
        inner = replace_calls(text[found.end() + 1 : end], function, change)
        made.append(text[at : found.start()])
        made.append(change(Call(found, inner, text[: found.start()], text[end + 1 :])))
        at = end + 1
    return "".join((*made, text[at:]))


def split_arguments(text: str) -> list[str]:
    """The arguments of a call, by the commas that no bracket encloses."""
    depth, parts = 0, [""]
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]
