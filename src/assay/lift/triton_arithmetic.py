"""Actions on the arithmetic of a lifted kernel: cheaper exponentials, products for quotients.

All change results in the last bits of float32. Whether that is right enough is for the judge to say.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from assay.lift.record import CannotLift, Kernel
from assay.lift.triton_library import FAST, WITH_EXP
from assay.lift.triton_syntax import (
    CallRewrite,
    assignment_counts,
    blocks,
    expression,
    names_in,
    parse,
    simple_target,
    statement,
    text_of,
    unparse,
)

ROW_VALUE = "[:, None]"


def arithmetic_actions(kernel: Kernel) -> Iterator[str]:
    yield "fast_exp"
    yield "fast_tanh"
    yield "reciprocal"


def fast_exp(kernel: Kernel) -> Kernel:
    """Triton's own exponential, one instruction and a product, for the one of libdevice."""
    tree, function = parse(kernel.text)
    if "libdevice.exp(" not in kernel.text and not names_in(function) & WITH_EXP:
        raise CannotLift(f"{kernel.name} takes no exponential that could be cheaper")

    def cheaper(call: ast.Call) -> ast.expr:
        name = text_of(call.func)
        if name == "libdevice.exp":
            call.func = expression("tl.exp")
        elif name in WITH_EXP:
            call.func = expression(name + FAST)
        return call

    CallRewrite(cheaper).visit(tree)
    return replace(kernel, text=unparse(tree))


def fast_tanh(kernel: Kernel) -> Kernel:
    """tanh by one exponential: right to the last bits of 1, not to those of small results."""
    if "libdevice.tanh(" not in kernel.text:
        raise CannotLift(f"{kernel.name} takes no tanh")
    return replace(kernel, text=kernel.text.replace("libdevice.tanh(", "tanh_by_exp("))


def reciprocal(kernel: Kernel) -> Kernel:
    """Quotients by a value of the row as products with its reciprocal, which is computed once for the row."""
    tree, function = parse(kernel.text)
    counts = assignment_counts(function)
    rows = {
        name
        for block in blocks(function)
        for node in block
        if (name := simple_target(node)) and _is_row_value(node, counts[name])
    }
    divisors = _Products(rows)
    divisors.visit(function)
    if not divisors.found:
        raise CannotLift(f"{kernel.name} divides nothing by a value of its row")
    for block in blocks(function):
        for place in range(len(block) - 1, -1, -1):
            name = simple_target(block[place])
            if name in divisors.found and _is_row_value(block[place], counts[name]):
                block.insert(place + 1, statement(f"{name}_inverse = 1.0 / {name}"))
    return replace(kernel, text=unparse(tree))


def _is_row_value(node: ast.stmt, assigned: int) -> bool:
    """`tmp4 = tmp4[:, None]` or `tmp6 = tl.sum(tmp5, 1)[:, None]`: a value for each row."""
    return isinstance(node, ast.Assign) and ROW_VALUE in text_of(node.value) and assigned <= 2


class _Products(ast.NodeTransformer):
    """`a / row` becomes `a * row_inverse`."""

    def __init__(self, rows: set[str]) -> None:
        self.rows = rows
        self.found: set[str] = set()

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if not (
            isinstance(node.op, ast.Div) and isinstance(node.right, ast.Name) and node.right.id in self.rows
        ):
            return node
        if text_of(node.left) == "1.0":
            return node
        self.found.add(node.right.id)
        return ast.BinOp(node.left, ast.Mult(), ast.Name(id=f"{node.right.id}_inverse", ctx=ast.Load()))
