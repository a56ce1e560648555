"""Fuses a reduction over rows with the pointwise kernel behind it that reads the result of each row.

Inductor keeps the two apart where it sees different loops over the same elements: group norm, quantisation by
blocks. Fused, the second part walks over the row again while it is in cache, or takes it from registers once
the kernel holds rows. Refused where the second kernel reads a result of another row, or writes what the first
reads.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from assay.lift.record import CannotLift, Kernel, Launch, Lifted, Line
from assay.lift.triton_buffers import FRESH, Overlap, owners, pointer_types, without_dead_results
from assay.lift.triton_knobs import divisibility, sizes_of
from assay.lift.triton_repeats import TYPES, drop_repeats
from assay.lift.triton_syntax import (
    CallRewrite,
    Rename,
    Substitution,
    argument,
    assignment_counts,
    base_pointer,
    calls,
    definition,
    drop_unused,
    expression,
    loops,
    names_in,
    parse,
    set_keyword,
    statement,
    text_of,
    tl_name,
    unparse,
)

ROW = "row_of_first"
"""Stands for the first kernel's index while both are in one expression."""
OWN_INDEX = tuple(f"{axis}{what}" for axis in "xy" for what in ("offset", "index", "mask", "numel"))
"""Names of the second kernel that are the first one's afterwards."""


def fuse_next(lifted: Lifted, first: Kernel) -> Lifted:
    """The problem with the kernel and the one that is launched next in one."""
    place, other = _places(lifted, first)
    start, end = lifted.steps[place], lifted.steps[other]
    assert isinstance(start, Launch) and isinstance(end, Launch)
    second = next(kernel for kernel in lifted.kernels if kernel.name == end.kernel)
    _check_shapes(first, second)
    memory = owners(lifted)
    merge = _Merge(first, second, start, end, memory)
    kernel, launch = merge.fused()
    between = list(lifted.steps[place + 1 : other])
    steps = (*lifted.steps[:place], *between, launch, *lifted.steps[other + 1 :])
    kernels = tuple(kernel if k is first else k for k in lifted.kernels if k is not second)
    return without_dead_results(replace(lifted, kernels=kernels, steps=steps), kernel.name)


def _places(lifted: Lifted, first: Kernel) -> tuple[int, int]:
    """Where the kernel and the next one are launched: once each, with nothing but allocations between."""
    launches = [i for i, step in enumerate(lifted.steps) if isinstance(step, Launch)]
    mine = [i for i in launches if _launched(lifted, i) == first.name]
    after = [i for i in launches if mine and i > mine[-1]]
    if len(mine) != 1 or not after:
        raise CannotLift(f"no kernel is launched behind {first.name}, or it runs more than once")
    name = _launched(lifted, after[0])
    if sum(_launched(lifted, i) == name for i in launches) != 1:
        raise CannotLift(f"{name} is launched more than once")
    for step in lifted.steps[mine[0] + 1 : after[0]]:
        if not (isinstance(step, Line) and step.text.partition(" = ")[2].startswith(FRESH)):
            raise CannotLift(f"something else happens between {first.name} and {name}")
    return mine[0], after[0]


def _launched(lifted: Lifted, place: int) -> str:
    step = lifted.steps[place]
    return step.kernel if isinstance(step, Launch) else ""


def _check_shapes(first: Kernel, second: Kernel) -> None:
    rows, elements = sizes_of(first), sizes_of(second)
    if (
        set(rows) != {"x", "r0_"}
        or set(elements) not in ({"x"}, {"x", "y"})
        or second.facts["kind"] != "pointwise"
    ):
        raise CannotLift(f"{first.name} and {second.name} are no reduction over rows and a pointwise kernel")
    is_whole = "y" not in elements or rows["r0_"] % elements["x"] == 0
    if rows["x"] * rows["r0_"] != prod(elements.values()) or not is_whole:
        raise CannotLift(f"{first.name} and {second.name} do not walk over the same elements")
    if "PROGRAMS" in {*first.knobs, *second.knobs} or "num_programs(0)" in second.text:
        raise CannotLift(f"{first.name} and {second.name} walk over their tiles in orders of their own")
    if "tl.int64" in _index(second) and "tl.int64" not in _index(first):
        raise CannotLift(f"{second.name} needs wider indices than {first.name}")


def _index(kernel: Kernel) -> str:
    _, function = parse(kernel.text)
    found = [definition(function, name) for name in OWN_INDEX if name.endswith(("offset", "index"))]
    return " ".join(text_of(value) for value in found if value is not None)


@dataclass(frozen=True)
class _Merge:
    """Two kernels with their launches, on the way to one."""

    first: Kernel
    second: Kernel
    start: Launch
    end: Launch
    memory: Mapping[str, str]

    @property
    def row(self) -> tuple[str, int]:
        """Which index of the second kernel, divided by what, is the number of the row."""
        sizes, length = sizes_of(self.second), sizes_of(self.first)["r0_"]
        return ("yindex", length // sizes["x"]) if "y" in sizes else ("xindex", length)

    def fused(self) -> tuple[Kernel, Launch]:
        tree, function = parse(self.first.text)
        added_tree, added = parse(self.second.text)
        names = self._parameter_names(function)
        self._check_hazards(function, added, names)
        self._rename(added, names)
        self._take_row_values(function, added)
        self._move_to_rows(function, added)
        self._append(
            function, added, lambda one, other: bool(self._owner(names, one) & self._owner(names, other))
        )
        given = dict(zip(self.first.parameters, self.start.arguments, strict=True))
        given |= {names[p]: text for p, text in zip(self.second.parameters, self.end.arguments, strict=True)}
        kept = [name for name in given if name in names_in(function)]
        constants = [arg for arg in function.args.args if arg.annotation is not None]
        function.args.args = [ast.arg(arg=name) for name in kept] + constants
        tree.body = [n for n in added_tree.body if n is not added] + tree.body
        types = pointer_types(self.first) | {names[p]: kind for p, kind in pointer_types(self.second).items()}
        facts = {**self.first.facts, "types": " ".join(f"{name}={types[name]}" for name in kept)}
        kernel = replace(self.first, text=unparse(tree), parameters=tuple(kept), facts=facts)
        return kernel, Launch(kernel.name, tuple(given[name] for name in kept))

    def _parameter_names(self, function: ast.FunctionDef) -> dict[str, str]:
        """Of the second kernel: the first one's parameter where both are given the same, else a new name."""
        same = {text: name for name, text in zip(self.first.parameters, self.start.arguments, strict=True)}
        names: dict[str, str] = {}
        for name, text in zip(self.second.parameters, self.end.arguments, strict=True):
            new = name
            while new in names_in(function) or new in self.first.parameters or new in names.values():
                new += "b"
            names[name] = same.get(text, new)
        return names

    def _owner(self, names: Mapping[str, str], parameter: str) -> set[str]:
        """What memory a parameter of the fused kernel stands for."""
        given = dict(zip(self.first.parameters, self.start.arguments, strict=True))
        given |= {names[p]: text for p, text in zip(self.second.parameters, self.end.arguments, strict=True)}
        return {self.memory[name] for name in names_in(ast.parse(given[parameter])) if name in self.memory}

    def _check_hazards(
        self, function: ast.FunctionDef, added: ast.FunctionDef, names: dict[str, str]
    ) -> None:
        """Programs do not wait for each other: what one reads no other may write."""
        read = {base_pointer(call) for call in calls(function, "load")}
        for call in [*calls(added, "store"), *calls(added, "atomic_add")]:
            target = names[base_pointer(call)]
            if any(self._owner(names, target) & self._owner(names, pointer) for pointer in read):
                raise CannotLift(f"{self.second.name} writes what {self.first.name} reads")
        written = {base_pointer(call) for call in calls(function, "store")}
        for call in calls(added, "load"):
            pointer = names[base_pointer(call)]
            for target in written - {pointer}:
                if self._owner(names, target) & self._owner(names, pointer):
                    raise CannotLift(
                        f"{self.second.name} reads a result of {self.first.name} under another view"
                    )

    def _rename(self, added: ast.FunctionDef, names: Mapping[str, str]) -> None:
        own = {name: f"{name}_b" for name in assignment_counts(added) if name not in OWN_INDEX}
        Rename({**own, **names}).visit(added)

    def _take_row_values(self, function: ast.FunctionDef, added: ast.FunctionDef) -> None:
        """Loads of what the first kernel stored for a row become the value itself."""
        stored = {base_pointer(call): call for call in calls(function, "store")}
        types = pointer_types(self.first)
        index = {
            name: value
            for name in assignment_counts(added)
            if name not in OWN_INDEX and (value := definition(added, name)) is not None and _is_index(value)
        }

        def taken(call: ast.Call) -> ast.expr:
            if tl_name(call) != "load" or base_pointer(call) not in stored:
                return call
            pointer = base_pointer(call)
            store = stored[pointer]
            address = call.args[0]
            for _ in range(4):  # an index may be made of others
                address = Substitution(index).visit(expression(text_of(address)))
            if text_of(_RowNumber(*self.row).visit(address)) != text_of(store.args[0]):
                raise CannotLift(f"{self.second.name} reads results of {self.first.name} in other places")
            return expression(f"({text_of(store.args[1])}).to({TYPES[types[pointer]]})")

        CallRewrite(taken).visit(added)

    def _move_to_rows(self, function: ast.FunctionDef, added: ast.FunctionDef) -> None:
        """From elements counted through to (row, place in the row), with the masks of the first kernel."""
        masks = [f"{axis}mask" for axis in ("r0_", "x") if not _is_unmasked(self.first, axis)]
        mask = " & ".join(name for name in masks if name in names_in(function))
        added.body = [
            n for n in added.body if not (isinstance(n, ast.Assign) and text_of(n.targets[0]) in OWN_INDEX)
        ]
        CallRewrite(lambda call: _masked(call, mask)).visit(added)
        if "y" in sizes_of(self.second):
            _Counted(sizes_of(self.second)["x"], sizes_of(self.first)["r0_"]).visit(added)
        Substitution(self._positions()).visit(added)
        _Shapes().visit(added)

    def _positions(self) -> dict[str, ast.expr]:
        """The second kernel's indices by row and place in the row."""
        sizes, length = sizes_of(self.second), sizes_of(self.first)["r0_"]
        if "y" not in sizes:
            return {"xindex": expression(f"(r0_index + {length} * xindex)")}
        inner = sizes["x"]
        return {
            "yindex": expression(f"(r0_index // {inner} + {length // inner} * xindex)"),
            "xindex": expression(f"(r0_index % {inner})"),
            ROW: expression("xindex"),
        }

    def _append(self, function: ast.FunctionDef, added: ast.FunctionDef, overlap: Overlap) -> None:
        if not loops(function):
            function.body += added.body
            drop_repeats(function, self.first, overlap)
        else:
            loop = statement(
                "for r0_offset in tl.range(0, r0_numel, R0_BLOCK):\n    r0_index = r0_offset + r0_base"
            )
            assert isinstance(loop, ast.For)
            if not _is_unmasked(self.first, "r0_"):
                loop.body.append(statement("r0_mask = r0_index < r0_numel"))
            loop.body += added.body
            function.body.append(loop)
        drop_unused(function)


def _is_unmasked(kernel: Kernel, axis: str) -> bool:
    return {"x": "XBLOCK", "r0_": "R0_BLOCK"}[axis] in divisibility(kernel)


def _is_index(value: ast.expr) -> bool:
    """Made of positions and numbers alone."""
    return all(isinstance(node, ast.BinOp | ast.Name | ast.Constant | ast.operator | ast.expr_context)
               for node in ast.walk(value))  # fmt: skip


class _RowNumber(ast.NodeTransformer):
    """`xindex // 4096 // 8` is the number of the row where rows have 32768 elements."""

    def __init__(self, index: str, length: int) -> None:
        self.index, self.length = index, length

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and _divisor(node, self.index) == self.length:
            return ast.Name(id="xindex", ctx=ast.Load())
        return self.generic_visit(node)


def _divisor(node: ast.expr, index: str) -> int | None:
    """What an index is divided by, in one or more steps."""
    if isinstance(node, ast.Name) and node.id == index:
        return 1
    if (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.FloorDiv)
        and isinstance(node.right, ast.Constant)
    ):
        before = _divisor(node.left, index)
        return (
            before * int(node.right.value)
            if before is not None and isinstance(node.right.value, int)
            else None
        )
    return None


def _masked(call: ast.Call, mask: str) -> ast.expr:
    """Under the mask of rows, in place of the second kernel's own."""
    name = tl_name(call)
    if name not in ("load", "store", "atomic_add") or not names_in(call.args[0]) - {base_pointer(call)}:
        return call  # a single value, which is read without a mask
    position = 1 if name == "load" else 2
    given = argument(call, position, "mask")
    parts = [text_of(part) for part in _conjunction(given) if text_of(part) not in ("xmask", "ymask", "None")]
    text = " & ".join([*(f"({part})" for part in parts), *([mask] if mask else [])]) or "None"
    set_keyword(call, "mask", None)
    call.args[position:] = [expression(text)]
    return call


def _conjunction(node: ast.expr | None) -> list[ast.expr]:
    if node is None:
        return []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        return [*_conjunction(node.left), *_conjunction(node.right)]
    return [node]


class _Counted(ast.NodeTransformer):
    """`xindex + 15 * yindex` counts elements through, as do the place in a row and its number."""

    def __init__(self, inner: int, length: int) -> None:
        self.counted = (f"xindex + {inner} * yindex", f"{inner} * yindex + xindex")
        self.flat = f"(r0_index + {length} * {ROW})"

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return expression(self.flat) if text_of(node) in self.counted else node


class _Shapes(ast.NodeTransformer):
    """`[XBLOCK]`, `[YBLOCK, XBLOCK]` and `[1]` are `[XBLOCK, R0_BLOCK]` and `[1, 1]` now."""

    def visit_List(self, node: ast.List) -> ast.expr:
        if text_of(node) in ("[XBLOCK]", "[YBLOCK, XBLOCK]"):
            return expression("[XBLOCK, R0_BLOCK]")
        return expression("[1, 1]") if text_of(node) == "[1]" else node
