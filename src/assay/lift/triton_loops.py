"""Actions on the loops and the grid of a lifted kernel: pipelines, unrolling, programs with several tiles."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from assay.lift.record import CannotLift, Kernel
from assay.lift.triton_buffers import Overlap
from assay.lift.triton_knobs import sizes_of
from assay.lift.triton_launch import check_grid, evaluated
from assay.lift.triton_syntax import (
    CallRewrite,
    base_pointer,
    calls,
    constant,
    expression,
    loops,
    parse,
    set_keyword,
    statement,
    text_of,
    tl_name,
    unparse,
)

DEPTHS = (2, 3, 4)
UNROLLING = (2, 4)
PROGRAMS_EACH = (1, 2, 4, 8)
"""Programs for each processor of the GPU, where programs take one tile after the other."""
GROUPS = (4, 8, 16)
"""Rows of tiles that are walked together, so that what they have in common stays in cache."""
LOOP = re.compile(r"(pipeline|unroll|flatten)\[(\d+)\]")
KEYWORDS = {"pipeline": "num_stages", "unroll": "loop_unroll_factor", "flatten": "flatten"}


def loop_actions(kernel: Kernel) -> Iterator[str]:
    _, function = parse(kernel.text)
    for place, loop in enumerate(loops(function)):
        yield from (f"pipeline[{place}]={depth}" for depth in DEPTHS)
        yield from (f"unroll[{place}]={factor}" for factor in UNROLLING)
        if loops_inside(loop):
            yield f"flatten[{place}]=1"
        now = [keyword.arg for keyword in loop.iter.keywords] if isinstance(loop.iter, ast.Call) else []
        yield from (f"{word}[{place}]=0" for word, keyword in KEYWORDS.items() if keyword in now)


def loops_inside(loop: ast.For) -> list[ast.For]:
    return [node for node in ast.walk(loop) if isinstance(node, ast.For) and node is not loop]


def set_loop(kernel: Kernel, word: str, value: str, overlap: Overlap) -> Kernel:
    """`pipeline[0]=3`: loads of three turns in flight; `unroll[0]=2`; `flatten[0]=1`; 0 takes it back."""
    found = LOOP.fullmatch(word)
    tree, function = parse(kernel.text)
    places = loops(function)
    if found is None or not value.isdigit() or int(found[2]) >= len(places):
        raise CannotLift(f"{kernel.name} has no loop for {word}={value}")
    loop, what = places[int(found[2])], found[1]
    legal = {"pipeline": (0, *DEPTHS, 5, 6), "unroll": (0, *UNROLLING, 8), "flatten": (0, 1)}[what]
    if int(value) not in legal:
        raise CannotLift(f"{word} is one of {legal}, not {value}")
    if what == "flatten" and not loops_inside(loop):
        raise CannotLift(f"{kernel.name}: loop {found[2]} has no loop in it to be flattened")
    if what == "pipeline" and int(value):
        _refuse_stale_loads(kernel, function, loop, overlap)
    if isinstance(loop.iter, ast.Call):
        setting = ast.Constant(True) if what == "flatten" else ast.Constant(int(value))
        set_keyword(loop.iter, KEYWORDS[what], setting if int(value) else None)
    return replace(kernel, text=unparse(tree))


def _refuse_stale_loads(kernel: Kernel, function: ast.FunctionDef, loop: ast.For, overlap: Overlap) -> None:
    """A load that runs ahead, by other threads, must not read what the kernel itself writes."""
    written = {base_pointer(call) for name in ("store", "atomic_add") for call in calls(function, name)}
    for read in {base_pointer(call) for call in calls(loop, "load")}:
        if any(overlap(read, pointer) for pointer in written):
            raise CannotLift(f"{kernel.name} reads and writes {read} in turn")


def grid_actions(kernel: Kernel) -> Iterator[str]:
    if len(kernel.grid) == 1:
        processors = int(kernel.facts["processors"])
        yield from (f"programs={processors * each}" for each in PROGRAMS_EACH)
    else:
        yield "swap_grid"
        yield from (f"group={rows}" for rows in GROUPS)


def few_programs(kernel: Kernel, programs: int) -> Kernel:
    """A grid of that many programs, each of which takes one tile after the other."""
    if "PROGRAMS" in kernel.knobs:
        return _other_number(kernel, programs)
    total = evaluated(kernel.grid[0], kernel.knobs) if len(kernel.grid) == 1 else None
    size = sizes_of(kernel).get("x")
    tree, function = parse(kernel.text)
    ids = calls(function, "program_id")
    if total is None or size is None or len(ids) != 1 or calls(function, "num_programs"):
        raise CannotLift(f"{kernel.name}: only a grid of one axis and known size can be walked in a loop")
    if not 1 <= programs < total:
        raise CannotLift(f"{kernel.name} has {total} tiles, so that {programs} programs save none")
    CallRewrite(_tile_number).visit(function)
    before = [node for node in function.body if _is_constant(node)]
    if constant(function, "xnumel") is None:
        before.append(statement(f"xnumel = {size}"))
    tiles = "tl.cdiv(xnumel, XBLOCK)" if "XBLOCK" in kernel.knobs else "xnumel"
    loop = statement(f"for tile in tl.range(tl.program_id(0), {tiles}, tl.num_programs(0)):\n    pass")
    assert isinstance(loop, ast.For)
    loop.body = [node for node in function.body if not _is_constant(node)]
    function.body = [*before, loop]
    knobs = {**kernel.knobs, "PROGRAMS": programs}
    return replace(kernel, text=unparse(tree), knobs=knobs, grid=("PROGRAMS",))


def _other_number(kernel: Kernel, programs: int) -> Kernel:
    tiles = -(-sizes_of(kernel)["x"] // kernel.knobs.get("XBLOCK", 1))
    if not 1 <= programs < tiles or programs == kernel.knobs["PROGRAMS"]:
        raise CannotLift(f"{kernel.name} has {tiles} tiles for {programs} programs")
    return replace(kernel, knobs={**kernel.knobs, "PROGRAMS": programs})


def _tile_number(call: ast.Call) -> ast.expr:
    return expression("tile") if tl_name(call) == "program_id" else call


def _is_constant(node: ast.stmt) -> bool:
    """`xnumel = 4096`, `R0_BLOCK: tl.constexpr = 1024`."""
    if isinstance(node, ast.AnnAssign):
        return True
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)


def swap_grid(kernel: Kernel) -> Kernel:
    """Programs that follow each other go along y and not along x, or the other way round."""
    tree, function = parse(kernel.text)
    is_grouped = len(kernel.grid) == 2 and calls(function, "num_programs")
    if len(kernel.grid) < 2 or "z" in sizes_of(kernel) or is_grouped:
        raise CannotLift(f"{kernel.name}: its grid has no two axes to swap")
    CallRewrite(_other_axis).visit(function)
    grid = (kernel.grid[1], kernel.grid[0])
    if len(kernel.grid) == 3:
        _drop_layers(function)
        grid = (f"triton.cdiv({sizes_of(kernel)['y']}, YBLOCK)", kernel.grid[0])
    changed = replace(kernel, text=unparse(tree), grid=grid)
    check_grid(changed)
    return changed


def group_programs(kernel: Kernel, rows: int) -> Kernel:
    """Walks over a grid of two axes in groups of rows, down each column of a group."""
    tree, function = parse(kernel.text)
    if len(kernel.grid) != 2 or calls(function, "num_programs") or rows not in GROUPS:
        raise CannotLift(f"{kernel.name}: its grid has no two axes to be walked in groups of {rows}")
    names = {"0": "column", "1": "row"}

    def place(call: ast.Call) -> ast.expr:
        return expression(names[text_of(call.args[0])]) if tl_name(call) == "program_id" else call

    CallRewrite(place).visit(function)
    ids = "tl.program_id(1), tl.program_id(0), tl.num_programs(1), tl.num_programs(0)"
    function.body.insert(0, statement(f"row, column = tl.swizzle2d({ids}, {rows})"))
    return replace(kernel, text=unparse(tree))


def _other_axis(call: ast.Call) -> ast.expr:
    if tl_name(call) == "program_id" and text_of(call.args[0]) in "01":
        return expression(f"tl.program_id({1 - int(text_of(call.args[0]))})")
    return call


def _drop_layers(function: ast.FunctionDef) -> None:
    """The first axis of a grid has room for all: y needs no third axis there."""

    class OneAxis(ast.NodeTransformer):
        def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
            self.generic_visit(node)
            spread = "tl.program_id(0) + tl.program_id(2) * tl.num_programs(1)"
            return expression("tl.program_id(0)") if text_of(node) == spread else node

    OneAxis().visit(function)
    if any(text_of(call) == "tl.program_id(2)" for call in calls(function, "program_id")):
        raise CannotLift("a grid of three axes in another form")
