"""What a standalone file needs of a problem file: Model and all it uses, as the author wrote it.

A KernelBot task has no Model but a function of `data`: there one is written around it that takes the parts of
data one by one, and at the end of the file the function that a submission defines. The files beside a task
are beside its submissions too, so that their imports stay.

Whatever the file does while it is imported is kept. Not covered: classes that change something just by having
a base (`__init_subclass__`), operators and attributes that do more than give a value.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from assay.lift.names import Names, names_of
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
_OF_THE_JUDGE = frozenset(
    ("get_inputs", "get_init_inputs", "cases", "cost", "PRECISION", "RULES", "ABOUT")
    + ("generate_input", "check_implementation")
)
"""What a problem file defines for whoever judges."""
_WITHOUT_EFFECTS = sys.stdlib_module_names | {"torch"}
"""Packages that are not imported for what they do then."""
_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_IMPORTS = (ast.Import, ast.ImportFrom)


def parts_of(data: Any) -> tuple[tuple[str, ...], list[Any]]:
    """The parts of a task's data, and names for them."""
    if not isinstance(data, (tuple, list)):
        return WHOLE, [data]
    return tuple(f"data_{k}" for k in range(len(data))), list(data)


def module_name(problem: Problem) -> str:
    """What the class is called that stands in for Model."""
    return "TaskKernel" if problem.entry == TASK_ENTRY else MODULE_ENTRY


def task_model(problem: Problem, inputs: Sequence[str]) -> str:
    """The Model of a task; empty where the file has one."""
    if problem.entry != TASK_ENTRY:
        return ""
    listed = ", ".join(inputs)
    return _MODEL_OF_TASK.format(inputs=listed, data=listed if tuple(inputs) == WHOLE else f"({listed},)")


def entry_source(problem: Problem, inputs: Sequence[str]) -> str:
    """What comes after that class."""
    if problem.entry != TASK_ENTRY:
        return ""
    return _TASKS_ENTRY.format(data="data" if tuple(inputs) == WHOLE else "*data")


def model_source(problem: Problem) -> tuple[str, str]:
    """(imports at the top, the rest): the statements of the file that Model or ref_kernel needs, in order.

    Inputs, cases and costs are left out, and whatever only they use.
    """
    kept = _kept(
        REFERENCE if problem.entry == TASK_ENTRY else MODEL, list(_parts(problem.specification().source))
    )
    imports = list(takewhile(_Part.is_import, kept))
    joined = ""
    before: _Part | None = None
    for part in kept[len(imports) :]:
        apart = part.is_definition() or (before is not None and before.is_definition())
        joined += ("\n\n\n" if apart else "\n") + part.text if before is not None else part.text
        before = part
    return "\n".join(part.text for part in imports), joined


@dataclass(frozen=True, slots=True)
class _Part:
    """A statement of the file, or several that share a line."""

    text: str
    statements: tuple[ast.stmt, ...]
    names: Names

    def is_import(self) -> bool:
        return all(isinstance(one, _IMPORTS) for one in self.statements)

    def is_definition(self) -> bool:
        return isinstance(self.statements[0], _DEFINITIONS)


def _parts(text: str) -> Iterator[_Part]:
    lines = text.split("\n")
    together: list[list[ast.stmt]] = []
    for statement in ast.parse(text).body:
        if together and statement.lineno <= _last_line(together[-1][-1]):
            together[-1].append(statement)
        else:
            together.append([statement])
    for group in together:
        first = group[0].lineno
        if isinstance(group[0], _DEFINITIONS):
            first = min([first, *(decorator.lineno for decorator in group[0].decorator_list)])
        own = "\n".join(lines[first - 1 : _last_line(group[-1])])
        yield _Part(own, tuple(group), names_of(own))


def _last_line(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


def _kept(name: str, parts: list[_Part]) -> list[_Part]:
    """What gives the name its value, what changes anything, and what these need, in order."""
    parts = [part for part in parts if not _is_for_programs(part)]
    read = frozenset[str]().union(*(part.names.read for part in parts))
    kept = {k for k, part in enumerate(parts) if _does_something(part, read)}
    needed = {name}.union(*(parts[k].names.read for k in kept))
    while more := {k for k, part in enumerate(parts) if k not in kept and part.names.bound & needed}:
        kept |= more
        needed = needed.union(*(parts[k].names.read for k in more))
    return [parts[k] for k in sorted(kept)]


def _is_for_programs(part: _Part) -> bool:
    """It runs where the file is run, and not where it is imported."""
    match part.statements:
        case (ast.If(test=test, orelse=[]),):
            return ast.unparse(test) == "__name__ == '__main__'"
    return False


def _does_something(part: _Part, read: frozenset[str]) -> bool:
    """Whether it may do more than give names a value."""
    if part.names.bound and part.names.bound <= _OF_THE_JUDGE:
        return False
    if part.is_import() and not part.names.bound & read and set(_packages(part)) - _WITHOUT_EFFECTS:
        return True
    return any(_acts(node) for statement in part.statements for node in _running(statement))


def _packages(part: _Part) -> Iterator[str]:
    for statement in part.statements:
        if isinstance(statement, ast.ImportFrom):
            yield (statement.module or "").split(".")[0]
        elif isinstance(statement, ast.Import):
            yield from (alias.name.split(".")[0] for alias in statement.names)


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """What runs when the node does: not the bodies of functions."""
    yield node
    for field, value in ast.iter_fields(node):
        if field == "body" and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _running(child)


def _acts(node: ast.AST) -> bool:
    match node:
        case ast.Call() | ast.AugAssign():
            return True
        case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
            return True
        case ast.ClassDef(keywords=[_, *_]) | ast.ImportFrom(names=[ast.alias(name="*")]):
            return True
        case ast.ImportFrom(module="__future__"):
            return True
    return isinstance(node, _DEFINITIONS) and bool(node.decorator_list)
