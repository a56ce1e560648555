"""Triton kernels as syntax trees: what reading a kernel and changing it have in common.

A kernel's text holds one function, with the functions it alone calls before it. Everything here looks at the
form that inductor writes (names assigned once, straight code, loops over `tl.range`) and is not meant for
other Triton.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from assay.lift.record import CannotLift

SIDE_EFFECTS = frozenset(
    (
        *("store", "atomic_add", "atomic_max", "atomic_min", "atomic_xchg", "atomic_cas"),
        *("device_assert", "debug_barrier", "device_print", "inline_asm_elementwise"),
    )
)
"""Functions of tl that do something besides giving a value."""
BLOCK_OF = {"x": "XBLOCK", "y": "YBLOCK", "z": "ZBLOCK", "r0_": "R0_BLOCK", "r1_": "R1_BLOCK"}


def parse(text: str) -> tuple[ast.Module, ast.FunctionDef]:
    """The tree of a kernel's text and the kernel in it: the last function."""
    tree = ast.parse(text)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    if not functions:
        raise CannotLift("a kernel's text holds no function")
    return tree, functions[-1]


def unparse(tree: ast.Module) -> str:
    ast.fix_missing_locations(tree)
    return "\n\n\n".join(ast.unparse(node) for node in tree.body) + "\n"


def text_of(node: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(node))


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def statement(text: str) -> ast.stmt:
    return ast.parse(text).body[0]


def tl_name(node: ast.AST) -> str:
    """ "load" for a call of tl.load, "" for anything else."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return ""
    return node.func.attr if isinstance(node.func.value, ast.Name) and node.func.value.id == "tl" else ""


def calls(tree: ast.AST, name: str) -> list[ast.Call]:
    """Calls of tl.<name> in the order of the text."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and tl_name(node) == name]
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def names_in(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def base_pointer(call: ast.Call) -> str:
    """The parameter that a load or store goes through: the leftmost name of its address."""
    node: ast.expr = call.args[0]
    while isinstance(node, ast.BinOp):
        node = node.left
    if not isinstance(node, ast.Name):
        raise CannotLift(f"an address that does not start with a pointer: {text_of(call.args[0])}")
    return node.id


def argument(call: ast.Call, position: int, keyword: str) -> ast.expr | None:
    """An argument that may be given by place or by name."""
    if len(call.args) > position:
        return call.args[position]
    return next((k.value for k in call.keywords if k.arg == keyword), None)


def set_keyword(call: ast.Call, name: str, value: ast.expr | None) -> None:
    """Gives, changes or (with None) removes an argument that is given by name."""
    call.keywords = [keyword for keyword in call.keywords if keyword.arg != name]
    if value is not None:
        call.keywords.append(ast.keyword(arg=name, value=value))


def blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Every list of statements: the function's own, then those of what is nested in it."""
    if isinstance(node, ast.FunctionDef):
        lists = [node.body]
    elif isinstance(node, ast.For | ast.While | ast.If):
        lists = [node.body, node.orelse] if node.orelse else [node.body]
    else:
        return
    for inner in lists:
        yield inner
        for statement_inside in list(inner):
            yield from blocks(statement_inside)


def targets(node: ast.stmt) -> list[str]:
    """Names that a statement itself assigns."""
    if isinstance(node, ast.Assign):
        return [name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    if isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def assignment_counts(function: ast.FunctionDef) -> Counter[str]:
    return Counter(name for block in blocks(function) for node in block for name in targets(node))


def simple_target(node: ast.stmt) -> str | None:
    """The name of a plain `name = value`."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return None


def definitions(function: ast.FunctionDef, name: str) -> list[ast.expr]:
    """All that a name is assigned."""
    return [
        node.value
        for block in blocks(function)
        for node in block
        if isinstance(node, ast.Assign | ast.AnnAssign) and name in targets(node) and node.value is not None
    ]


def definition(function: ast.FunctionDef, name: str) -> ast.expr | None:
    """What a name is assigned, where that happens once."""
    found = definitions(function, name)
    return found[0] if len(found) == 1 else None


def constant(function: ast.FunctionDef, name: str) -> int | None:
    """The value of a name that the body sets to a whole number."""
    value = definition(function, name)
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, int) else None


class Substitution(ast.NodeTransformer):
    """Puts expressions in the place of names that are read."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self.values:
            return ast.parse(text_of(self.values[node.id]), mode="eval").body
        return node


class Rename(ast.NodeTransformer):
    """Changes names wherever they stand."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(id=self.names.get(node.id, node.id), ctx=node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(arg=self.names.get(node.arg, node.arg), annotation=node.annotation)


class CallRewrite(ast.NodeTransformer):
    """Hands every call to a function, inner ones first, and takes what it gives back."""

    def __init__(self, change: Callable[[ast.Call], ast.expr]) -> None:
        self.change = change

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        return self.change(node)


def is_pure(node: ast.AST) -> bool:
    """Whether leaving it out changes nothing but the names it assigns."""
    return not any(tl_name(inner) in SIDE_EFFECTS for inner in ast.walk(node))


def drop_unused(function: ast.FunctionDef) -> None:
    """Removes assignments to names that nothing reads, until there are none."""
    while True:
        read = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        removed = 0
        for block in blocks(function):
            kept = [node for node in block if not _is_unused(node, read)]
            removed += len(block) - len(kept)
            block[:] = kept
        if not removed:
            return


def _is_unused(node: ast.stmt, read: set[str]) -> bool:
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return False
    assigned = targets(node)
    return bool(assigned) and not read.intersection(assigned) and is_pure(node)


def loops(function: ast.FunctionDef) -> list[ast.For]:
    """Loops over tl.range, in order."""
    found = [n for n in ast.walk(function) if isinstance(n, ast.For) and tl_name(n.iter) == "range"]
    return sorted(found, key=lambda node: node.lineno)
