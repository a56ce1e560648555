"""Execute a problem file with some of its module-level constants replaced.

The replacement is made on the syntax tree, before execution, so constants computed from one follow.
Problem code is trusted. Not covered: constants inside functions or `if` blocks, imports of sibling files,
and files that build their constants by calling functions.
"""

from __future__ import annotations

import ast
import hashlib
import math
import os
import symtable
import sys
import types
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from assay.problems.devices import CPU, seeded
from assay.records.errors import UserError

# Problem code may raise nearly anything: in a legality trial that means "not legal", elsewhere a UserError.
# JudgeFault, KeyboardInterrupt and SystemExit are left out on purpose.
PROBLEM_CODE_ERRORS: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    NameError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)

_CACHED_NAMESPACES = 32
_CASE_FUNCTIONS = ("get_inputs", "get_init_inputs", "cases", "cost")
_OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")


class ModuleSource:
    """One problem file: its text, its replaceable constants, and its namespaces."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.text = read_text(path)
        self.digest = hashlib.sha256(self.text.encode()).hexdigest()
        self.tree = parse(self.text, self.path)
        self.bound_names = frozenset(_bound_names(self.tree))
        self.constants = _constants(self.tree)
        self._namespaces: OrderedDict[str, types.ModuleType] = OrderedDict()
        self._trial_count = 0

    def literal_constants(self) -> tuple[str, ...]:
        """Constants that stand on their own: those computed from others follow them instead."""
        return tuple(
            name
            for name, value in self.constants.items()
            if not any(isinstance(node, ast.Name) for node in ast.walk(value))
        )

    def fixed_constants(self) -> frozenset[str]:
        """Constants the specification itself reads: candidates have a copy, so no case changes them."""
        tables = symtable.symtable(self.text, self.path, "exec").get_children()
        pending = [table for table in tables if table.get_name() not in _CASE_FUNCTIONS]
        read: set[str] = set()
        while pending:
            table = pending.pop()
            pending += table.get_children()
            read |= {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
        names = [name for name in read if name in self.constants]
        for name in names:  # grows: what a fixed constant is computed from is fixed too
            inner = {node.id for node in ast.walk(self.constants[name]) if isinstance(node, ast.Name)}
            names += [other for other in inner if other in self.constants and other not in names]
        return frozenset(names)

    def linked_items(self) -> dict[str, dict[int, str]]:
        """For tuples such as (batch, 3, 224): which item names which constant."""
        found: dict[str, dict[int, str]] = {}
        for name, value in self.constants.items():
            items = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            names = {index: item.id for index, item in enumerate(items) if isinstance(item, ast.Name)}
            plain = all(isinstance(item, (ast.Name, ast.Constant)) for item in items)
            if names and plain and all(other in self.constants for other in names.values()):
                found[name] = names
        return found

    def namespace(self, sizes: Mapping[str, Any]) -> types.ModuleType:
        """The executed module for these sizes; stays registered so that inspect and dataclasses work."""
        key = repr(sorted(sizes.items()))
        if key not in self._namespaces:
            name = f"assay_problem_{self.digest[:12]}_{hashlib.sha256(key.encode()).hexdigest()[:8]}"
            self._namespaces[key] = self._execute(name, sizes)
            if len(self._namespaces) > _CACHED_NAMESPACES:
                _, evicted = self._namespaces.popitem(last=False)
                sys.modules.pop(evicted.__name__, None)
        self._namespaces.move_to_end(key)
        return self._namespaces[key]

    @contextmanager
    def trial(self, sizes: Mapping[str, Any]) -> Iterator[types.ModuleType]:
        """A namespace for these sizes that is forgotten after the block."""
        self._trial_count += 1
        name = f"assay_problem_{self.digest[:12]}_trial{self._trial_count}"
        try:
            yield self._execute(name, sizes)
        finally:
            sys.modules.pop(name, None)

    def _execute(self, name: str, sizes: Mapping[str, Any]) -> types.ModuleType:
        code = compile(self._with_sizes(sizes), self.path, "exec")
        module = types.ModuleType(name)
        module.__file__ = self.path
        sys.modules[name] = module
        try:
            # A file may seed torch at its top level; the judge's own random state must not notice.
            with seeded(0, CPU), no_downloads(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(code, module.__dict__)
        except PROBLEM_CODE_ERRORS as error:
            sys.modules.pop(name, None)
            raise UserError(explain(self.path, "running the file", error)) from error
        return module

    def check_sizes(self, sizes: Mapping[str, Any]) -> None:
        """A UserError for a name that is no constant of this file, or a value that is no literal."""
        for name, value in sizes.items():
            if name not in self.constants:
                known = ", ".join(self.constants) or "none here"
                raise UserError(
                    f"{self.path}: a case sets '{name}', which is no module constant: use one of {known}"
                )
            if not _is_literal(value):
                raise UserError(f"{self.path}: a case sets '{name}' to {value!r}: use a plain literal")

    def _with_sizes(self, sizes: Mapping[str, Any]) -> ast.Module:
        self.check_sizes(sizes)
        body: list[ast.stmt] = []
        for statement in self.tree.body:
            body.extend(_replaced(statement, sizes))
        return ast.Module(body=body, type_ignores=[])


def read_text(path: Path) -> str:
    """The file's text, or a UserError that says why not."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file: check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}): give a UTF-8 text file") from error


def parse(text: str, path: str) -> ast.Module:
    """The file's syntax tree, or a UserError naming the line."""
    try:
        return ast.parse(text, filename=path)
    except SyntaxError as error:
        raise UserError(f"{path}:{error.lineno}: syntax error ({error.msg}): fix the problem file") from error


def explain(path: str, doing: str, error: Exception) -> str:
    """One line about problem code that raised."""
    reason = str(error).strip().split("\n")[0] or type(error).__name__
    if isinstance(error, ImportError) and error.name:
        return f"{path}: {doing} needs the package '{error.name}', which is not installed: install it first"
    if isinstance(error, OSError):
        return (
            f"{path}: {doing} needs a file or weights that are not on this machine ({reason}): "
            "fetch them yourself first, nothing is downloaded"
        )
    return f"{path}: {doing} failed with {type(error).__name__} ({reason}): fix the problem file"


@contextmanager
def no_downloads() -> Iterator[None]:
    """HuggingFace libraries look only into their local cache while the block runs."""
    before = {name: os.environ.get(name) for name in _OFFLINE_VARIABLES}
    with ExitStack() as stack:
        hub = sys.modules.get("huggingface_hub.constants")
        if hub is not None:
            # The variable is read once, at import; after that only the constant counts.
            stack.callback(setattr, hub, "HF_HUB_OFFLINE", getattr(hub, "HF_HUB_OFFLINE", False))
            hub.__dict__["HF_HUB_OFFLINE"] = True
        os.environ.update(dict.fromkeys(_OFFLINE_VARIABLES, "1"))
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _is_literal(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_literal(item) for item in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (bool, int, str))


def _literal(value: Any) -> ast.expr:
    return ast.parse(repr(value), mode="eval").body


def _assigned_names(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, (ast.Tuple, ast.List)):
        for item in target.elts:
            yield from _assigned_names(item)


def _bound_names(tree: ast.Module) -> Iterator[str]:
    for statement in tree.body:
        if isinstance(statement, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield statement.name
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            for alias in statement.names:
                yield (alias.asname or alias.name).split(".")[0]
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                yield from _assigned_names(target)
        elif isinstance(statement, ast.AnnAssign):
            yield from _assigned_names(statement.target)


def _pairs(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """(name, value) for every plain name the statement assigns."""
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        if isinstance(statement.target, ast.Name):
            yield statement.target.id, statement.value
    elif isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Name):
                yield target.id, statement.value
            elif isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
                for item, value in zip(target.elts, statement.value.elts, strict=False):
                    if isinstance(item, ast.Name):
                        yield item.id, value


_CONSTANT_NODES = (
    ast.Constant,
    ast.Name,
    ast.UnaryOp,
    ast.BinOp,
    ast.Tuple,
    ast.List,
    ast.operator,
    ast.unaryop,
    ast.expr_context,
)


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Top-level names assigned an expression of literals, other names and arithmetic."""
    found: dict[str, ast.expr] = {}
    for statement in tree.body:
        for name, value in _pairs(statement):
            if all(isinstance(node, _CONSTANT_NODES) for node in ast.walk(value)):
                found[name] = value
    return found


def _replaced(statement: ast.stmt, sizes: Mapping[str, Any]) -> Iterator[ast.stmt]:
    """The statement, followed by an assignment of each replaced name it sets.

    Following instead of rewriting covers `a = b = 1` and `a, b = 1, 2` with the same code.
    """
    yield statement
    for name, _ in _pairs(statement):
        if name in sizes:
            target = ast.Name(id=name, ctx=ast.Store())
            assignment = ast.Assign(targets=[target], value=_literal(sizes[name]))
            yield ast.fix_missing_locations(ast.copy_location(assignment, statement))
