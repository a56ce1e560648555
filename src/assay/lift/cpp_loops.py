"""The order of loops and how threads share them: tiles, threads, schedules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from assay.lift.cpp_simd import is_independent, is_innermost
from assay.lift.cpp_strips import has_unit_step
from assay.lift.cpp_text import loads, names_in
from assay.lift.cpp_tree import Block, Function, Loop, Node, Statement, rewrite, texts

_PARALLEL = "#pragma omp parallel"
_SHARED = "#pragma omp for"


def in_tiles(node: Node, size: int) -> Sequence[Node]:
    """Two nested loops that walk through memory in different directions, tile by tile."""
    if not isinstance(node, Loop) or len(node.body) != 1 or not isinstance(node.body[0], Loop):
        return (node,)
    inner = node.body[0]
    if not is_innermost(inner) or not is_independent(inner) or not _cross(node.var, inner):
        return (node,)
    if node.step != "1" or inner.step != "1" or any("omp" in pragma for pragma in inner.pragmas):
        return (node,)
    outer_tile, inner_tile = f"{node.var}_tile", f"{inner.var}_tile"
    innermost = replace(inner, start=inner_tile, stop=_end(inner, size))
    rows = Loop(node.var, outer_tile, _end(node, size), "1", (innermost,))
    columns = Loop(inner_tile, inner.start, inner.stop, str(size), (rows,))
    return (Loop(outer_tile, node.start, node.stop, str(size), (columns,), node.pragmas),)


def _end(loop: Loop, size: int) -> str:
    return f"std::min<int64_t>({loop.stop}, {loop.var}_tile + {size})"


def _cross(outer: str, inner: Loop) -> bool:
    """Some tensor has neighbours along the outer loop, and no neighbours along the inner one."""
    indices = [index for text in texts(inner.body) for _, index in loads(text)]
    return any(
        has_unit_step(i, outer) and inner.var in names_in(i) and not has_unit_step(i, inner.var)
        for i in indices
    )


def on_one_thread(function: Function) -> Function:
    """Without threads."""

    def change(node: Node) -> Sequence[Node]:
        if isinstance(node, Block | Loop):
            kept = tuple(
                p.replace(" for simd", " simd") for p in node.pragmas if "simd" in p or "omp" not in p
            )
            node = replace(node, pragmas=kept)
            if isinstance(node, Block) and not kept and not _numbers_threads(node):
                return node.body
        return (node,)

    return replace(function, body=rewrite(function.body, change))


def _numbers_threads(block: Block) -> bool:
    """It declares names of its own, which may be others' outside."""
    return any(isinstance(node, Statement) for node in block.body)


def with_private_parameters(function: Function) -> Function:
    """Each thread has the kernel's arguments for itself: a store of bytes could change what is shared."""
    names = [one.name for one in function.parameters]

    def change(node: Node) -> Sequence[Node]:
        if not isinstance(node, Block) or not any(pragma.startswith(_PARALLEL) for pragma in node.pragmas):
            return (node,)
        used = {word for text in texts(node.body) for word in names_in(text)}
        own = ", ".join(name for name in names if name in used)
        if not own or "firstprivate" in node.pragmas[0]:
            return (node,)
        return (replace(node, pragmas=tuple(f"{pragma} firstprivate({own})" for pragma in node.pragmas)),)

    return replace(function, body=rewrite(function.body, change))


def parallel_above(function: Function, least: int) -> Function:
    """Threads only where there is enough to do for them."""
    parameters = {one.name for one in function.parameters}

    def change(node: Node) -> Sequence[Node]:
        if isinstance(node, Block) and any(pragma.startswith(_PARALLEL) for pragma in node.pragmas):
            work = [text for loop in node.body if isinstance(loop, Loop) for text in _work(loop, parameters)]
            if work:
                pragmas = tuple(f"{pragma} if ({work[0]} >= {least})" for pragma in node.pragmas)
                return (replace(node, pragmas=pragmas),)
        return (node,)

    return replace(function, body=rewrite(function.body, change))


def _work(loop: Loop, known: set[str]) -> Iterator[str]:
    """How many innermost iterations a nest of loops has, as far as it can be told beforehand."""
    factors = []
    current: Loop | None = loop
    while current is not None:
        names = names_in(current.stop) - {"std", "min", "int64_t", "floor_div"}
        if names <= known:
            factors.append(f"({current.stop})")
        inner = [node for node in current.body if isinstance(node, Loop)]
        current = inner[0] if inner else None
    if factors:
        yield "*".join(factors)


def scheduled(function: Function, how: str) -> Function:
    """Iterations dealt out to threads in another way: "static,8", "dynamic,1", "guided"."""

    def change(node: Node) -> Sequence[Node]:
        if not isinstance(node, Loop):
            return (node,)
        pragmas = tuple(f"{p} schedule({how})" if p.startswith(_SHARED) else p for p in node.pragmas)
        return (replace(node, pragmas=pragmas),)

    return replace(function, body=rewrite(function.body, change))
