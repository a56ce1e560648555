"""When two sources are the same program: a digest that comments, spacing and names do not change.

Python is compared by its syntax tree, with the names a file binds itself numbered in the order they appear.
C++ and CUDA, alone or as text inside Python, are compared without comments and spacing; their names count.
Not covered: the same computation written in another way.
"""

from __future__ import annotations

import ast
import re

from assay.candidates import PYTHON_ENTRIES
from assay.records import digest

_COMMENT = re.compile(r"//(?![ \t]*assay:)[^\n]*|/\*.*?\*/", re.DOTALL)
_SPACES = re.compile(r"\s+")
_BESIDE_SYMBOLS = re.compile(r"\s*([^\w\s])\s*")
_CODE_LINES = 3


def normal_form(source: str, suffix: str) -> str:
    """Equal for candidates that are the same program."""
    if suffix != ".py":
        return digest(suffix, _plain_c(source))
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return digest(suffix, _SPACES.sub(" ", source).strip())
    _Undocumented().visit(tree)
    _Renamed(tree).visit(tree)
    return digest(suffix, ast.dump(tree))


def _plain_c(source: str) -> str:
    """Lines of the preprocessor, and directives of ours, end where they end; all other lines run on."""
    parts: list[str] = []
    runs_on = False
    for line in _COMMENT.sub(" ", source).splitlines():
        text = _SPACES.sub(" ", line).strip()
        if not text:
            continue
        is_line = text.startswith(("#", "//"))
        if runs_on and not is_line:
            parts[-1] = f"{parts[-1]} {text}"
        else:
            parts.append(text)
        runs_on = not is_line
    return "\n".join(_BESIDE_SYMBOLS.sub(r"\1", part) for part in parts)


class _Undocumented(ast.NodeTransformer):
    """Leaves out docstrings, and reads code in strings as code."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str) and node.value.count("\n") >= _CODE_LINES and ";" in node.value:
            return ast.Constant(_plain_c(node.value))
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [part for part in body if not _is_text(part)]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
        return super().generic_visit(node)


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


class _Renamed(ast.NodeTransformer):
    """Numbers what the file binds: functions, classes, arguments, variables; not entries, not imports."""

    def __init__(self, tree: ast.Module) -> None:
        names: dict[str, None] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names[node.name] = None
            elif isinstance(node, ast.arg):
                names[node.arg] = None
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names[node.id] = None
        methods = {
            part.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            for part in node.body
            if isinstance(part, ast.FunctionDef)
        }
        kept = {*PYTHON_ENTRIES, "self", "Model", *methods}
        self._names = {name: f"v{k}" for k, name in enumerate(name for name in names if name not in kept)}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(self._names.get(node.arg, node.arg))

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        name = self._names.get(node.arg, node.arg) if node.arg else None
        return ast.keyword(name, self.visit(node.value))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._names.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self._names.get(node.name, node.name)
        return self.generic_visit(node)
