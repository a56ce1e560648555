"""Strips: neighbouring columns handled at once where inner loops run over rows.

Inductor's plain loops for a reduction over rows walk down one column after the other, and read a cache line
for each number. A strip of columns reads whole lines, keeps a result for each column, and vectorises.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from assay.lift.cpp_simd import IVDEP, SIMD, is_innermost
from assay.lift.cpp_text import declaration, loads, names_in, renamed
from assay.lift.cpp_tree import Loop, Node, Statement, map_text, texts, walk


def in_strips(node: Node, width: int) -> Sequence[Node]:
    """A loop over columns whose inner loops run over rows, many columns at a time."""
    if not isinstance(node, Loop) or node.step != "1" or not _has_row_loops(node):
        return (node,)
    maker = _Strips(node.var, width, node.body)
    if not maker.applies:
        return (node,)
    strip, count = f"{node.var}_strip", "columns"
    body = (
        Statement(f"const int64_t {count} = std::min<int64_t>({width}, {node.stop} - {strip})"),
        *maker.expanded(node.body),
    )
    pragmas = tuple(pragma for pragma in node.pragmas if pragma != IVDEP)
    return (Loop(strip, node.start, node.stop, str(width), body, pragmas),)


def _has_row_loops(loop: Loop) -> bool:
    """Its innermost loops walk in long steps, while its own neighbours are neighbours in memory."""
    inner = [node for node in walk(loop.body) if isinstance(node, Loop)]
    if not inner or any("omp" in pragma for node in inner for pragma in node.pragmas):
        return False
    bounds = {name for node in inner for text in (node.start, node.stop) for name in names_in(text)}
    if loop.var in bounds:
        return False
    deepest = [node for node in inner if is_innermost(node)]
    indices = [index for node in deepest for text in texts(node.body) for _, index in loads(text)]
    crossed = [index for index in indices if loop.var in names_in(index)]
    unit = [index for index in crossed if has_unit_step(index, loop.var)]
    return bool(unit) and not any(has_unit_step(i, node.var) for node in deepest for i in crossed)


def has_unit_step(index: str, var: str) -> bool:
    """Whether `var` is a term of its own in the index."""
    return re.search(rf"(?:^|\+ ){var}(?: \+| -|$)", index) is not None


class _Strips:
    """Distributes the body of a loop over strips of it."""

    def __init__(self, var: str, width: int, body: Sequence[Node]) -> None:
        self._var = var
        self._width = width
        self._types: dict[str, str] = {}
        self._uniform: set[str] = set()
        groups = list(self._groups(body))
        declared = {
            one.name: one.type for group in groups for text in texts(group) if (one := declaration(text))
        }
        self.applies = True
        for group in groups:
            inside = {one.name for text in texts(group) if (one := declaration(text))}
            outside = {
                n for other in groups if other is not group for text in texts(other) for n in names_in(text)
            }
            for name in inside & outside:
                shared_elsewhere = any(
                    name in {d.name for t in texts(other) if (d := declaration(t))}
                    for other in groups
                    if other is not group
                )
                if shared_elsewhere:
                    continue
                self._types[name] = declared[name]
                self.applies = self.applies and declared[name] != "auto"

    def _groups(self, nodes: Sequence[Node]) -> list[tuple[Node, ...]]:
        """Statements that run in one loop over the strip."""
        found: list[tuple[Node, ...]] = []
        group: list[Node] = []
        for node in nodes:
            if isinstance(node, Loop) or self._is_uniform(node):
                found += [tuple(group)] if group else []
                group = []
                found += self._groups(node.body) if isinstance(node, Loop) else []
            else:
                group.append(node)
        return [*found, tuple(group)] if group else found

    def _is_uniform(self, node: Node) -> bool:
        """The same for all columns."""
        if not isinstance(node, Statement):
            return False
        one = declaration(node.text)
        return (
            one is not None
            and one.type == "int64_t"
            and self._var not in names_in(node.text)
            and "[" not in node.text
        )

    def expanded(self, nodes: Sequence[Node]) -> list[Node]:
        made: list[Node] = []
        group: list[Node] = []
        for node in nodes:
            if isinstance(node, Loop):
                made += self._columns(group)
                group = []
                made.append(replace(node, body=tuple(self.expanded(node.body)), pragmas=()))
            elif self._is_uniform(node):
                made += self._columns(group)
                group = []
                made.append(node)
            else:
                group.append(node)
        return [*made, *self._columns(group)]

    def _columns(self, group: Sequence[Node]) -> list[Node]:
        if not group:
            return []
        before: list[Node] = []
        body: list[Node] = []
        for node in group:
            one = declaration(node.text) if isinstance(node, Statement) else None
            if one is not None and one.name in self._types:
                before.append(Statement(f"{one.type} {one.name}[{self._width}]"))
                if one.rest.startswith("= "):
                    body.append(Statement(f"{one.name} {one.rest}"))
            else:
                body.append(node)
        names = {name: f"{name}[column]" for name in self._types}
        here = Statement(f"const int64_t {self._var} = {self._var}_strip + column")
        used = any(self._var in names_in(text) for text in texts(body))
        inner = map_text(body, lambda text: renamed(text, names))
        loop = Loop("column", "0", "columns", "1", ((here,) if used else ()) + inner, (SIMD,))
        plain = not any(text in ("continue", "break") or ".merge(" in text for text in texts(inner))
        return [*before, *([loop if plain else replace(loop, pragmas=())] if body else [])]
