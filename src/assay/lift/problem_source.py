"""What a standalone file needs of a problem file: Model and all it uses, as the author wrote it.

A KernelBot task has no Model but a function of `data`: there one is written around it that takes the parts of
data one by one, and at the end of the file the function that a submission defines.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from assay.problems import Problem

MODEL = "Model"
MODULE_ENTRY, TASK_ENTRY = "ModelNew", "custom_kernel"
REFERENCE = "ref_kernel"
WHOLE = ("data",)
"""The names of the parts of data that is no tuple or list."""
_MODEL_OF_TASK = """class Model(torch.nn.Module):
    def forward(self, {inputs}):
        return ref_kernel({data})"""
_TASKS_ENTRY = """task_kernel = TaskKernel()


def custom_kernel(data):
    return task_kernel.forward({data})"""


def parts_of(data: Any) -> tuple[tuple[str, ...], list[Any]]:
    """The parts of a task's data, and names for them."""
    if not isinstance(data, (tuple, list)):
        return WHOLE, [data]
    return tuple(f"data_{k}" for k in range(len(data))), list(data)


def module_name(problem: Problem) -> str:
    """What the class is called that stands in for Model."""
    return "TaskKernel" if problem.entry == TASK_ENTRY else MODULE_ENTRY


def entry_source(problem: Problem, inputs: Sequence[str]) -> str:
    """What comes after that class."""
    if problem.entry != TASK_ENTRY:
        return ""
    return _TASKS_ENTRY.format(data="data" if tuple(inputs) == WHOLE else "*data")


def model_source(problem: Problem, inputs: Sequence[str]) -> tuple[str, str]:
    """(imports, the rest): the statements of the file that Model needs, in order.

    Inputs, cases and costs are left out, and whatever only they use.
    """
    if problem.entry != TASK_ENTRY:
        return _needed_by(MODEL, problem)
    imports, rest = _needed_by(REFERENCE, problem)
    listed = ", ".join(inputs)
    model = _MODEL_OF_TASK.format(inputs=listed, data=listed if tuple(inputs) == WHOLE else f"({listed},)")
    return imports, f"{rest}\n\n\n{model}"


def _needed_by(name: str, problem: Problem) -> tuple[str, str]:
    text = problem.specification().source
    statements = [one for one in ast.parse(text).body if not _is_docstring(one)]
    needed = _needed(name, statements)
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


def _needed(name: str, statements: list[ast.stmt]) -> set[str]:
    """Names that it reads, and those that these read."""
    needed: set[str] = set()
    pending = [name]
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
