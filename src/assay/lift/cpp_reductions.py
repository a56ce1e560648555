"""Inductor's reductions in plain C++: sums in chunks, moments by two passes, one slot for each thread.

A long sum is made of sums over chunks, which are added up in double precision: as accurate as what inductor
does, and a loop that vectorises. Mean and variance of a chunk take two passes over it while it is in the
cache, and are merged; that is more accurate than one value at a time and has no division in the loop. What
threads have summed is kept in one slot each, however many there are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from assay.lift.cpp_text import declaration, loads, names_in, store
from assay.lift.cpp_tree import Block, If, Lambda, Loop, Node, Statement, map_text, rewrite, texts, walk
from assay.lift.record import CannotLift

CHUNK = 4096
_HELPER = re.compile(
    r"(?:static )?(?P<kind>CascadeSumHelper|WelfordHelper)<(?P<type>\w+), \d+> (?P<name>\w+)\(.*\)"
)
_SUMMED = re.compile(r"(?P<name>\w+) = cascade_sum_combine\((?P<value>.*), &\w+\)")
_JOINED = re.compile(r"(?P<name>\w+) = welford_combine\((?P=name), (?P<value>\w+), &\w+\)")
_ENDED = re.compile(r"\w+ = (?:cascade_sum_final\(&\w+\)|welford_combine\(\w+, &\w+\))")
_MERGED = re.compile(r"(?P<name>\w+) = welford_combine\((?P=name), (?P<other>\w+\[\w+\])\)")
_SLOTS = re.compile(r"(?P<type>[\w<>]+) (?P<name>\w+_arr)\[(?:\d+|max_threads)\]")
_THREADS = "omp_get_max_threads()"


def plain_reductions(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """The kernel without inductor's helpers for reductions."""
    nodes = _slots(nodes)
    nodes = rewrite(nodes, _without_helpers)
    summed = {found["name"] for text in texts(nodes) if (found := _SUMMED.fullmatch(text))}
    nodes = map_text(rewrite(nodes, _in_chunks), lambda text: _in_double(text, summed))
    nodes = map_text(nodes, _own_types)
    for text in texts(nodes):
        if found := re.search(r"\b(welford_combine|cascade_sum_\w+|\w+_combine)\b", text):
            raise CannotLift(f"the reduction {found[0]}")
    return _without_unused_threads(nodes)


def _in_double(text: str, summed: set[str]) -> str:
    """The sum of many chunks: sums of a chunk are short and stay in single precision.

    Another reduction may have the same name elsewhere: a sum begins with 0.
    """
    found = declaration(text)
    is_sum = found is not None and found.name in summed and found.rest in ("= 0", "")
    return f"double {found.name} {found.rest}" if found is not None and is_sum else text


def _own_types(text: str) -> str:
    text = re.sub(r"Welford<\w+> (\w+) = Welford<\w+>\(\)", r"Moments \1", text)
    text = re.sub(r"\bWelford<\w+>", "Moments", text)
    return re.sub(r"\bIndexValue<", "Placed<", text)


def _without_helpers(node: Node) -> Sequence[Node]:
    if isinstance(node, Statement):
        if _HELPER.fullmatch(node.text) or _ENDED.fullmatch(node.text):
            return ()
        if found := _MERGED.fullmatch(node.text):
            return (Statement(f"{found['name']}.merge({found['other']})"),)
    return (node,)


def _in_chunks(node: Node) -> Sequence[Node]:
    """An innermost loop that sums or collects moments, chunk by chunk."""
    if not isinstance(node, Loop):
        return (node,)
    statements = [one for one in node.body if isinstance(one, Statement)]
    sums = [found for one in statements if (found := _SUMMED.fullmatch(one.text))]
    moments = [found for one in statements if (found := _JOINED.fullmatch(one.text))]
    if not sums and not moments:
        return (node,)
    first = chunk = f"{node.var}_chunk"
    last = f"{node.var}_end"
    inner = replace(node, start=chunk, stop=last, pragmas=())
    body: list[Node] = [
        Statement(f"const int64_t {last} = std::min<int64_t>({node.stop}, {chunk} + {CHUNK})")
    ]
    if node.stop.isdigit() and int(node.stop) <= CHUNK and not _is_shared(node):
        body, first, last = [], node.start, node.stop
        inner = node
    body += _chunk(inner, first, last)
    if inner is node:
        return body
    return (Loop(chunk, node.start, node.stop, str(CHUNK), tuple(body), node.pragmas),)


def _is_shared(loop: Loop) -> bool:
    return any("omp for" in pragma for pragma in loop.pragmas)


def _chunk(loop: Loop, first: str, last: str) -> list[Node]:
    """The loop over one chunk, and what becomes of its sums."""
    before: list[Node] = []
    body: list[Node] = []
    after: list[Node] = []
    for node in loop.body:
        text = node.text if isinstance(node, Statement) else ""
        if found := _SUMMED.fullmatch(text):
            part = f"{found['name']}_part"
            before.append(Statement(f"float {part} = 0"))
            body.append(Statement(f"{part} = {part} + {found['value']}"))
            after.append(Statement(f"{found['name']} = {found['name']} + {part}"))
        elif found := _JOINED.fullmatch(text):
            slice_ = _needed_for(found["value"], loop.body)
            if slice_ is None:
                body.append(Statement(f"{found['name']}.add({found['value']})"))
                continue
            total, mean, squares = (f"{found['name']}_{what}" for what in ("sum", "mean", "squares"))
            before.append(Statement(f"float {total} = 0"))
            body.append(Statement(f"{total} = {total} + {found['value']}"))
            count = last if first == "0" else f"({last} - {first})"
            off = f"{found['name']}_off"
            away = (Statement(f"const float {off} = {found['value']} - {mean}"),
                    Statement(f"{squares} = {squares} + {off} * {off}"))  # fmt: skip
            after += [
                Statement(f"const float {mean} = {total} / {count}"),
                Statement(f"float {squares} = 0"),
                replace(loop, body=(*slice_, *away)),
                Statement(f"{found['name']}.merge({mean}, {squares}, {count})"),
            ]
        else:
            body.append(node)
    return [*before, replace(loop, body=tuple(body)), *after]


def _needed_for(name: str, nodes: Sequence[Node]) -> tuple[Node, ...] | None:
    """What gives `name` its value; None where a second pass would not find what the first one did."""
    wanted, kept = {name}, []
    for node in reversed(nodes):
        made = _made_by(node)
        if made is not None and made in wanted:
            kept.append(node)
            wanted |= {word for text in texts((node,)) for word in names_in(text)}
    written = {one.pointer for text in texts(nodes) if (one := store(text))}
    read = {pointer for text in texts(kept) for pointer, _ in loads(text)}
    return None if written & read else tuple(reversed(kept))


def _made_by(node: Node) -> str | None:
    if isinstance(node, Lambda):
        return node.name
    if isinstance(node, Statement) and (one := declaration(node.text)):
        return one.name
    return None


def _slots(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """One slot for each thread there is, instead of for as many as inductor counted."""
    arrays = {found["name"] for text in texts(nodes) if (found := _SLOTS.fullmatch(text))}
    if not arrays:
        return nodes
    initial: dict[str, str] = {}
    for node in walk(nodes):
        if isinstance(node, Loop) and node.var == "i":
            stored = [one for text in texts(node.body) if (one := store(text))]
            initial |= {one.pointer: one.value for one in stored if one.pointer in arrays}
    return rewrite(nodes, lambda node: _with_slots(node, initial))


def _with_slots(node: Node, initial: Mapping[str, str]) -> Sequence[Node]:
    match node:
        case Statement(text) if text.startswith("int max_threads ="):
            return ()
        case Statement(text) if found := _SLOTS.fullmatch(text):
            name = found["name"]
            # Neighbouring bools share a byte in a vector, which threads must not.
            kind = "int" if found["type"] == "bool" else found["type"]
            return (Statement(f"std::vector<{kind}> {name}({_THREADS}, {initial[name]})"),)
        case Loop(var="i") if initial.keys() & names_in(" ".join(texts(node.body))):
            return ()
        case Loop(var="tid"):
            return (replace(node, stop=_THREADS),)
    return (node,)


def _without_unused_threads(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Threads are not counted, and not numbered where nobody asks."""

    def change(node: Node) -> Sequence[Node]:
        if isinstance(node, Block | Loop):
            pragmas = tuple(re.sub(r" num_threads\(\w+\)", "", pragma) for pragma in node.pragmas)
            node = replace(node, pragmas=pragmas)
        if isinstance(node, Block | If):
            used = sum("tid" in names_in(text) for text in texts(node.body))
            body = [one for one in node.body if used > 1 or not _numbers_thread(one)]
            node = replace(node, body=tuple(body))
        return (node,)

    return rewrite(nodes, change)


def _numbers_thread(node: Node) -> bool:
    return isinstance(node, Statement) and node.text == "int tid = omp_get_thread_num()"
