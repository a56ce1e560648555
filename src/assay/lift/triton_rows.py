"""Turns a reduction that walks along rows in loops into one that holds whole rows at once.

Each loop becomes its body, run once. What later loops would read again is then there already: one pass over
memory in place of two or three. Running maxima, means and sums of exponentials are computed directly. Results
may differ in the last bits, as sums are added up in another order.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from assay.lift.record import CannotLift, Kernel
from assay.lift.triton_buffers import Overlap
from assay.lift.triton_knobs import MOST_ELEMENTS, divisibility, elements, sizes_of, with_divisibility
from assay.lift.triton_launch import power_of_2
from assay.lift.triton_memory import ALWAYS, forward_copies, remove_mask
from assay.lift.triton_repeats import drop_repeats
from assay.lift.triton_syntax import (
    Substitution,
    blocks,
    drop_unused,
    expression,
    loops,
    names_in,
    parse,
    simple_target,
    statement,
    targets,
    text_of,
    tl_name,
    unparse,
)

DIRECT = {"welford_step": "mean_and_spread", "softmax_step": "softmax_top_and_total"}


def hold_rows(kernel: Kernel, overlap: Overlap) -> Kernel:
    """The kernel with each row read once and held; refused where a row is too long for that."""
    sizes = sizes_of(kernel)
    if set(sizes) != {"x", "r0_"} or "R0_BLOCK" not in kernel.knobs:
        raise CannotLift(f"{kernel.name} does not walk along rows in a loop")
    row = power_of_2(sizes["r0_"])
    if row > MOST_ELEMENTS:
        raise CannotLift(f"{kernel.name}: rows of {sizes['r0_']} do not fit into registers")
    tree, function = parse(kernel.text)
    _run_loops_once(kernel, function)
    _compute_directly(function)
    is_full = sizes["r0_"] == row
    if is_full and "r0_mask" in names_in(function):
        remove_mask(function, "r0_mask")
    drop_repeats(function, kernel, overlap)
    forward_copies(function)
    drop_unused(function)
    function.args.args = [arg for arg in function.args.args if arg.arg != "R0_BLOCK"]
    function.body.insert(0, statement(f"R0_BLOCK: tl.constexpr = {row}"))
    facts = with_divisibility(kernel, "R0_BLOCK", row) if is_full else dict(kernel.facts)
    facts["kind"] = "persistent_reduction"
    held = replace(kernel, text=unparse(tree), knobs=_knobs(kernel, row, sizes["x"]), facts=facts)
    if elements(held) > MOST_ELEMENTS:
        raise CannotLift(f"{kernel.name}: rows of {sizes['r0_']} do not fit into registers")
    return held


def _knobs(kernel: Kernel, row: int, rows: int) -> dict[str, int]:
    """Thirty-two elements for each thread, and a tile wide enough for whole cache lines."""
    along = kernel.facts["reduction"] == "INNER"
    xblock = max(1, 1024 // row) if along else max(16, min(8192 // row, 128))
    xblock = min(xblock, power_of_2(rows))
    while divisibility(kernel).get("XBLOCK", 0) % xblock:
        xblock //= 2
    knobs = {name: value for name, value in kernel.knobs.items() if name not in ("R0_BLOCK", "maxnreg")}
    warps = power_of_2(max(1, min(4, xblock * row // 512), min(xblock * row // 1024, 32)))
    return knobs | {"XBLOCK": xblock, "num_warps": warps}


def _run_loops_once(kernel: Kernel, function: ast.FunctionDef) -> None:
    """Puts the body of every loop over a row in its place: the first turn is the only one."""
    found = [loop for loop in loops(function) if text_of(loop.target) == "r0_offset"]
    if not found:
        raise CannotLift(f"{kernel.name} does not walk along rows in a loop")
    for block in blocks(function):
        for place in range(len(block) - 1, -1, -1):
            if block[place] in found:
                node = block[place]
                assert isinstance(node, ast.For)
                block[place : place + 1] = node.body
    Substitution({"r0_offset": ast.Constant(0)}).visit(function)
    FirstTurn().visit(function)
    for block in blocks(function):
        _drop_said_twice(block)


class FirstTurn(ast.NodeTransformer):
    """What follows from an offset of zero."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        is_zero = isinstance(node.left, ast.Constant) and node.left.value == 0
        return node.right if is_zero and text_of(node.right) == "r0_base" else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """`0 == 0` and `0 > 0`: the first turn, and a later one."""
        constants = {"0 == 0": True, "0 > 0": False, "0 != 0": False}
        self.generic_visit(node)
        text = text_of(node)
        return ast.Constant(constants[text]) if text in constants else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if tl_name(node) == "where" and isinstance(node.args[0], ast.Constant):
            return node.args[1] if node.args[0].value else node.args[2]
        return node


def _drop_said_twice(block: list[ast.stmt]) -> None:
    """Row positions and masks, which each loop computed for itself."""
    said: set[str] = set()
    kept: list[ast.stmt] = []
    for node in block:
        name = simple_target(node)
        if name is not None and name.startswith("r0_"):
            if text_of(node) in said:
                continue
            said.add(text_of(node))
        kept.append(node)
    block[:] = kept


@dataclass
class Running:
    """One running computation: what it steps over, its accumulators, and where they are taken over."""

    step: ast.Assign
    value: str
    mask: ast.expr = field(default_factory=lambda: ALWAYS)
    accumulators: tuple[str, ...] = ()
    updates: list[ast.stmt] = field(default_factory=list)


def _compute_directly(function: ast.FunctionDef) -> None:
    """welford_step and softmax_step with what joins them, as sums over the row."""
    for block in blocks(function):
        for running in [found for node in block if (found := _running(node)) is not None]:
            _find_updates(block, running)
            _replace_join(block, running)


def _running(node: ast.stmt) -> Running | None:
    """`mean_next, spread_next, count_next = welford_step(value, mean, spread, count, True)`, or softmax's."""
    if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
        return None
    name, given = text_of(node.value.func), [text_of(arg) for arg in node.value.args]
    if name == "welford_step" and given[-1] == "True":
        return Running(node, given[0], accumulators=tuple(given[1:4]))
    if name == "softmax_step":
        return Running(node, given[2], accumulators=tuple(given[:2]))
    return None


def _find_updates(block: list[ast.stmt], running: Running) -> None:
    """`mean = tl.where(mask, mean_next, mean)`, or without a mask `mean = mean_next`."""
    following = targets(running.step)
    for node in block[block.index(running.step) + 1 :]:
        name = simple_target(node)
        if name not in running.accumulators or not isinstance(node, ast.Assign):
            continue
        running.updates.append(node)
        if isinstance(node.value, ast.Call) and tl_name(node.value) == "where":
            running.mask = node.value.args[0]
        elif text_of(node.value) not in following:
            raise CannotLift(f"a running {name} in another form")


def _replace_join(block: list[ast.stmt], running: Running) -> None:
    given = list(running.accumulators)
    joins = (f"tl.reduce(({', '.join(given)}), 1, welford_join)", f"softmax_join({', '.join(given)}, 1)")
    for place, node in enumerate(block):
        if isinstance(node, ast.Assign) and text_of(node.value) in joins:
            if not isinstance(running.step.value, ast.Call):
                continue
            direct = DIRECT[text_of(running.step.value.func)]
            count = "r0_numel, " if direct == "mean_and_spread" else ""
            node.value = expression(f"{direct}({running.value}, {text_of(running.mask)}, {count}1)")
            block[place] = node
            drop = [running.step, *running.updates]
            block[:] = [other for other in block if other not in drop and not _starts(other, given)]
            return
    raise CannotLift("a running computation that is joined in another form")


def _starts(node: ast.stmt, accumulators: list[str]) -> bool:
    return simple_target(node) in accumulators
