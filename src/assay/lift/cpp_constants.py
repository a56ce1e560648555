"""Numbers where they are used: `const float t = 1.0` is gone, and what used t says 1.0f."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from assay.lift.cpp_text import declaration, names_in, renamed
from assay.lift.cpp_tree import If, Lambda, Loop, Node, Statement, map_text, rewrite, texts

_TYPED = re.compile(
    r"(?:auto (?P<name>\w+) = )(?P<type>float|double|int64_t|int32_t)\((?P<value>-?[\d.]+(?:e[-+]?\d+)?)\)"
)
_LOW = re.compile(r"auto (?P<name>\w+) = larger\((?P<value>\w+), (?P<bound>-?[\d.e+-]+f)\)")
_HIGH = re.compile(r"auto (?P<name>\w+) = smaller\((?P<value>\w+), (?P<bound>-?[\d.e+-]+f)\)")
_NEEDS_TYPE = re.compile(r"\b(?:std::max|std::min|larger|smaller|decltype)\b")


def with_numbers(nodes: Sequence[Node], known: Mapping[str, str] | None = None) -> tuple[Node, ...]:
    """The tree with constants written out; those whose name has to stand somewhere stay."""
    values = dict(known or {})
    made: list[Node] = []
    declared = _declared(nodes)
    values = {name: value for name, value in values.items() if name not in declared}
    for node in nodes:
        if isinstance(node, Statement):
            found = _TYPED.fullmatch(node.text)
            if found and not _stays(found["name"], found["type"], nodes):
                values[found["name"]] = literal(found["type"], found["value"])
                continue
            made += map_text((node,), lambda text: renamed(text, values))
            continue
        if isinstance(node, Loop):
            start, stop = renamed(node.start, values), renamed(node.stop, values)
            node = replace(node, start=start, stop=stop)
        elif isinstance(node, If):
            otherwise = with_numbers(node.otherwise, values)
            node = replace(node, condition=renamed(node.condition, values), otherwise=otherwise)
        made.append(replace(node, body=with_numbers(node.body, values)))
    return tuple(made)


def _declared(nodes: Sequence[Node]) -> set[str]:
    found = {node.name for node in nodes if isinstance(node, Lambda)}
    return found | {one.name for n in nodes if isinstance(n, Statement) and (one := declaration(n.text))}


def _stays(name: str, kind: str, nodes: Sequence[Node]) -> bool:
    """Integers whose type a function needs, and whatever is asked for its type."""
    uses = [text for text in texts(nodes) if name in names_in(text) and not text.startswith(f"auto {name} =")]
    if kind.startswith("int"):
        return any(_NEEDS_TYPE.search(text) for text in uses)
    return any(f"decltype({name})" in text for text in uses)


def with_clamps(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """A maximum and then a minimum with numbers, as one function: NaN is then seen to once."""

    def change(node: Node) -> Sequence[Node]:
        return (node,) if isinstance(node, Statement) else (replace(node, body=_clamped(node.body)),)

    return _clamped(rewrite(nodes, change))


def _clamped(nodes: Sequence[Node]) -> tuple[Node, ...]:
    made = list(nodes)
    for k, node in enumerate(made):
        low = _LOW.fullmatch(node.text) if isinstance(node, Statement) else None
        if low is None or sum(low["name"] in names_in(text) for text in texts(nodes)) != 2:
            continue
        for j in range(k + 1, len(made)):
            other = made[j]
            high = _HIGH.fullmatch(other.text) if isinstance(other, Statement) else None
            if high is not None and high["value"] == low["name"]:
                bounds = f"{low['value']}, {low['bound']}, {high['bound']}"
                made[j] = Statement(f"auto {high['name']} = clamped({bounds})")
                made[k] = Statement("")
    return tuple(node for node in made if node != Statement(""))


def literal(kind: str, text: str) -> str:
    """The number as C++ of that type."""
    if kind != "float":
        return text if kind != "double" or "." in text or "e" in text else f"{text}.0"
    value = struct.unpack("f", struct.pack("f", float(text)))[0]
    plain = text if "." in text or "e" in text else f"{text}.0"
    return f"{plain}f" if _is_nearest(Fraction(text), value) else f"{value.hex()}f"


def _is_nearest(exact: Fraction, value: float) -> bool:
    """Whether the number itself, and not only the double next to it, is rounded to this float."""
    bits = struct.unpack("I", struct.pack("f", value))[0]
    distance = abs(exact - Fraction(value))
    for other in (bits - 1, bits + 1):
        if 0 <= other < 2**32:
            neighbour = struct.unpack("f", struct.pack("I", other))[0]
            if math.isfinite(neighbour) and abs(exact - Fraction(neighbour)) <= distance:
                return False
    return True
