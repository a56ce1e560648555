"""Loops that GCC vectorises: independent iterations marked so, reductions over lanes.

Every iteration of a loop that inductor writes for a CPU is independent of the others, but for the sums and
maxima it collects. `simd` says so to the compiler. `with_lanes` keeps several partial results of a reduction
beside each other; that changes the order of additions, not what is added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from assay.lift.cpp_text import assignment, declaration, names_in, split_arguments
from assay.lift.cpp_tree import If, Loop, Node, Statement, texts, walk

IVDEP = "#pragma GCC ivdep"
SIMD = "#pragma omp simd"
_SHARED = "#pragma omp for"
_INFIX = ("+", "*", "||", "&&", "^", "|", "&")
_CALLED = ("larger", "smaller")
_FEW = 32
"""Iterations below which lanes cost more than they save."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """`name = name + value`, or the same with another operation."""

    name: str
    operation: str
    value: str
    nan: str = ""
    """Where a maximum of floating-point numbers notes NaN: apart, which is quicker than keeping it."""
    is_first: bool = True
    """It is the one that notes NaN, if several are of one value."""

    def combined(self, a: str, b: str) -> str:
        return f"{self.operation}({a}, {b})" if self.operation in _CALLED else f"{a} {self.operation} {b}"

    def in_lane(self, lanes: str) -> list[Statement]:
        """What one lane does."""
        if not self.nan:
            return [Statement(f"{lanes}[lane] = {self.combined(f'{lanes}[lane]', self.value)}")]
        made = [Statement(f"{lanes}[lane] = {self.operation}_number({lanes}[lane], {self.value})")]
        if self.is_first:
            made.append(Statement(f"{self.nan}[lane] = {self.nan}[lane] | nan_flag({self.value})"))
        return made

    def joined(self, lanes: str) -> list[Statement]:
        """All lanes as one value."""
        if not self.nan:
            fold = f"fold({lanes}, [](auto a, auto b) {{ return {self.combined('a', 'b')}; }})"
            return [Statement(f"{self.name} = {self.combined(self.name, fold)}")]
        fold = f"fold({lanes}, [](auto a, auto b) {{ return {self.operation}_number(a, b); }})"
        nan = f"fold({self.nan}, [](auto a, auto b) {{ return a | b; }})"
        return [
            Statement(f"{self.name} = {self.combined(self.name, fold)}"),
            Statement(f'{self.name} = {nan} ? __builtin_nanf("") : {self.name}'),
        ]

    @property
    def start(self) -> str:
        """What each lane begins with; maxima and minima may begin with what is known already."""
        if self.operation in (*_CALLED, "&", "|"):
            return self.name
        return {"*": "1", "&&": "true"}.get(self.operation, "0")


def reduction(node: Node) -> Reduction | None:
    """The reduction that a statement is."""
    found = assignment(node.text) if isinstance(node, Statement) else None
    if found is None:
        return None
    name, value = found
    for operation in _INFIX:
        if value.startswith(f"{name} {operation} "):
            return Reduction(name, operation, value[len(name) + len(operation) + 2 :])
    for operation in _CALLED:
        if value.startswith(f"{operation}({name}, ") and value.endswith(")"):
            arguments = split_arguments(value[len(operation) + 1 : -1])
            return Reduction(name, operation, arguments[1]) if len(arguments) == 2 else None
    return None


def is_innermost(loop: Loop) -> bool:
    return not any(isinstance(node, Loop) for node in walk(loop.body))


def is_independent(loop: Loop) -> bool:
    """No iteration leaves something for the next, and none ends early."""
    declared = {one.name for text in texts(loop.body) if (one := declaration(text))}
    for text in texts(loop.body):
        found = assignment(text)
        if found is not None and found[0] not in declared:
            return False
        if text in ("continue", "break") or "atomic_add(" in text or ".add(" in text or ".merge(" in text:
            return False
    return True


def simd(node: Node) -> Sequence[Node]:
    """An innermost loop of independent iterations, marked for the vectoriser."""
    if not isinstance(node, Loop) or not is_innermost(node) or not is_independent(node):
        return (node,)
    if any("simd" in pragma for pragma in node.pragmas):
        return (node,)
    shared = [pragma for pragma in node.pragmas if pragma.startswith(_SHARED)]
    if shared:
        return (replace(node, pragmas=(shared[0].replace("omp for", "omp for simd"),)),)
    return (replace(node, pragmas=(SIMD,)),)


def in_chunks(node: Node, chunk: int) -> Sequence[Node]:
    """An innermost loop that threads share, in chunks: each of them is a plain loop."""
    if not isinstance(node, Loop) or not is_innermost(node) or node.step != "1" or len(node.pragmas) != 1:
        return (node,)
    if not node.pragmas[0].startswith(_SHARED) or any(text == "continue" for text in texts(node.body)):
        return (node,)
    first, end = f"{node.var}_chunk", f"{node.var}_end"
    inner = replace(node, start=first, stop=end, pragmas=())
    last = Statement(f"const int64_t {end} = std::min<int64_t>({node.stop}, {first} + {chunk})")
    return (Loop(first, node.start, node.stop, str(chunk), (last, inner), node.pragmas),)


def with_lanes(nodes: Sequence[Node], lanes: int, types: Mapping[str, str] | None = None) -> tuple[Node, ...]:
    """Every innermost loop that reduces, with `lanes` partial results."""
    known = dict(types or {})
    made: list[Node] = []
    for node in nodes:
        if isinstance(node, Statement):
            if one := declaration(node.text):
                known[one.name] = one.type
            made.append(node)
            continue
        if isinstance(node, Loop) and is_innermost(node):
            made += _lanes_of(node, lanes, known)
            continue
        node = replace(node, body=with_lanes(node.body, lanes, known))
        if isinstance(node, If):
            node = replace(node, otherwise=with_lanes(node.otherwise, lanes, known))
        made.append(node)
    return tuple(made)


def _lanes_of(loop: Loop, lanes: int, types: Mapping[str, str]) -> Sequence[Node]:
    found = [one for node in loop.body if (one := reduction(node)) and one.name in types]
    if not found or loop.step != "1" or any("omp" in pragma for pragma in loop.pragmas):
        return (loop,)
    names = {one.name for one in found}
    rest = tuple(node for node in loop.body if (one := reduction(node)) is None or one.name not in names)
    alone = replace(loop, body=rest)
    read = {name for text in texts(rest) for name in names_in(text)}
    if not is_independent(alone) or read & names or len(names) != len(found):
        return (loop,)
    if loop.start == "0" and loop.stop.isdigit() and int(loop.stop) < _FEW:
        return (loop,)
    return _split(loop, _noting_nan(found, types), lanes, types)


def _noting_nan(found: Sequence[Reduction], types: Mapping[str, str]) -> list[Reduction]:
    """Maxima and minima of floating-point numbers, each with the place where NaN is noted."""
    places: dict[str, str] = {}
    made: list[Reduction] = []
    for one in found:
        if one.operation in _CALLED and types[one.name] in ("float", "double"):
            is_first = one.value not in places
            one = replace(one, nan=places.setdefault(one.value, f"{one.name}_nan"), is_first=is_first)
        made.append(one)
    return made


def _split(loop: Loop, found: Sequence[Reduction], lanes: int, types: Mapping[str, str]) -> list[Node]:
    block, whole = f"{loop.var}_block", f"{found[0].name}_whole"
    slots = {one.name: f"{one.name}_lanes" for one in found}
    kinds = {name: "int32_t" if kind == "bool" else kind for name, kind in types.items()}
    made: list[Node] = [Statement(f"{kinds[one.name]} {slots[one.name]}[{lanes}]") for one in found]
    begin = tuple(Statement(f"{slots[one.name]}[lane] = {one.start}") for one in found)
    made += [Statement(f"int32_t {one.nan}[{lanes}] = {{}}") for one in found if one.nan and one.is_first]
    made.append(Loop("lane", "0", str(lanes), "1", begin, (SIMD,)))
    length, end = _whole(loop, lanes)
    made.append(Statement(f"const int64_t {whole} = {end}"))
    by_name = {one.name: one for one in found}
    inside = [one for node in loop.body for one in _in_lanes(node, slots, by_name)]
    step = Statement(f"const int64_t {loop.var} = {block} + lane")
    lane_loop = Loop("lane", "0", str(lanes), "1", (step, *inside), (SIMD,))
    made.append(Loop(block, loop.start, whole, str(lanes), (lane_loop,)))
    if not (length.isdigit() and int(length) % lanes == 0):
        made.append(replace(loop, start=whole, pragmas=()))
    made += [statement for one in found for statement in one.joined(slots[one.name])]
    return made


def _in_lanes(node: Node, slots: Mapping[str, str], found: Mapping[str, Reduction]) -> Sequence[Node]:
    one = reduction(node)
    return found[one.name].in_lane(slots[one.name]) if one is not None and one.name in found else (node,)


def _whole(loop: Loop, lanes: int) -> tuple[str, str]:
    """The number of iterations, and where the last whole block of them ends."""
    if loop.start == "0" and loop.stop.isdigit():
        return loop.stop, str(int(loop.stop) // lanes * lanes)
    plain = loop.stop if loop.stop.isidentifier() else f"({loop.stop})"
    length = plain if loop.start == "0" else f"({loop.stop} - {loop.start})"
    rounded = f"{length} / {lanes} * {lanes}"
    return length, rounded if loop.start == "0" else f"{loop.start} + {rounded}"
