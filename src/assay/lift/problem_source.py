"""What a standalone file needs of a problem file: Model and all it uses, as the author wrote it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from assay.lift.record import CannotLift
from assay.problems import Problem

MODEL = "Model"


def model_source(problem: Problem) -> tuple[str, str]:
    """(imports, the rest): the statements of the file that Model needs, in order.

    Inputs, cases and costs are left out, and whatever only they use.
    """
    if problem.entry != "ModelNew":
        raise CannotLift("a task without a Model")
    text = problem.specification().source
    statements = [one for one in ast.parse(text).body if not _is_docstring(one)]
    needed = _needed(statements)
    lines = text.splitlines()
    imports, rest = [], []
    for statement in statements:
        if not set(_bound(statement)) & needed:
            continue
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            imports.append(_text(statement, lines))
        else:
            rest.append((statement, _text(statement, lines)))
    joined = ""
    for statement, one in rest:
        apart = isinstance(statement, (ast.ClassDef, ast.FunctionDef))
        joined += ("\n\n\n" if apart else "\n") + one if joined else one
    return "\n".join(imports), joined


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _needed(statements: list[ast.stmt]) -> set[str]:
    """Names that Model reads, and those that these read."""
    needed: set[str] = set()
    pending = [MODEL]
    while pending:
        name = pending.pop()
        if name in needed:
            continue
        needed.add(name)
        for statement in statements:
            if name in _bound(statement):
                pending += [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
    return needed


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement of the file gives a value, inside of conditions and tries as well."""
    for node in (statement, *_inner(statement)):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                for alias in aliases:
                    yield (alias.asname or alias.name).split(".")[0]
            case ast.Assign(targets=targets):
                for target in targets:
                    yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.AugAssign(target=ast.Name(id=name)):
                yield name


def _inner(statement: ast.stmt) -> Iterator[ast.stmt]:
    if isinstance(statement, (ast.If, ast.Try, ast.With, ast.For)):
        yield from (
            node for node in ast.walk(statement) if isinstance(node, ast.stmt) and node is not statement
        )


def _text(statement: ast.stmt, lines: list[str]) -> str:
    first = statement.lineno
    if isinstance(statement, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        first = min([first, *(decorator.lineno for decorator in statement.decorator_list)])
    return "\n".join(lines[first - 1 : statement.end_lineno])
