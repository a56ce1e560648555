"""Problems that are one Python file: the native format and KernelBench's, read by one mechanism.

Both define `Model`, `get_inputs` and optionally `get_init_inputs`. A native file adds any of `cases()`,
`PRECISION` and `cost()`. Not covered: files that import siblings, and weights that must be downloaded.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from assay.problems.derive import derive_cases
from assay.problems.module_instance import ModuleInstance, check_case, working_dtype
from assay.problems.problem import Case, Precision, Specification
from assay.problems.source import PROBLEM_CODE_ERRORS, ModuleSource, explain
from assay.records.about import CATEGORIES, REGIMES, About
from assay.records.errors import UserError
from assay.records.rules import Rules

NATIVE_NAMES = ("cases", "PRECISION", "RULES", "ABOUT", "cost")
RULE_KEYS = {"library_calls": bool, "calls_per_weights": int, "keeps_state": bool, "any_stream": bool}
CASE_KEYS = ("name", "sizes", "dtype", "layout", "distribution", "hidden", "mode")


_LEVEL = re.compile(r"level(\d+)")


def level_of(path: Path) -> int:
    """Of a suite, by the folder a file lies in; 0 where that says nothing."""
    found = _LEVEL.fullmatch(path.resolve().parent.name)
    return int(found[1]) if found else 0


class ModuleProblem:
    """One problem file."""

    entry = "ModelNew"

    def __init__(self, path: Path, name: str) -> None:
        self.source = ModuleSource(path)
        missing = [needed for needed in ("Model", "get_inputs") if needed not in self.source.bound_names]
        if missing:
            raise UserError(f"{path}: defines no {' and no '.join(missing)}: a problem file needs both names")
        self.name = name
        self.path = str(path)
        self.digest = self.source.digest
        self.kind = "native" if self.source.bound_names.intersection(NATIVE_NAMES) else "kernelbench"
        self.support_files: Mapping[str, str] = {}
        self.files: Mapping[str, str] = {str(path.resolve()): self.source.text}
        self.precision = Precision()
        self.rules = Rules()
        self.about = About(level=level_of(path))
        self._declared: tuple[Case, ...] = (Case("nominal"),)
        if self.kind == "native":
            module = self.source.namespace({})
            self.precision = _read_precision(getattr(module, "PRECISION", {}), self.path)
            self.rules = _read_rules(getattr(module, "RULES", {}), self.path)
            self.about = _read_about(getattr(module, "ABOUT", {}), self.about, self.path)
            self._declared = self._read_cases(getattr(module, "cases", list))
        self.argument_names = self._forward_names()

    def nominal(self) -> Case:
        """The size the problem is scored at."""
        return self._declared[0]

    def declared_cases(self) -> tuple[Case, ...]:
        """The nominal case, then those that cases() names."""
        return self._declared

    def derived_cases(self, seed: int) -> tuple[Case, ...]:
        """Hidden cases invented from the file's integer constants."""
        return derive_cases(self.source, self.nominal(), seed)

    def specification(self) -> Specification:
        """The file itself: no case changes a constant that Model reads."""
        return Specification(self.source.text, self.support_files)

    def bind(self, case: Case) -> ModuleInstance:
        """Execute the file for the case."""
        return ModuleInstance(self.source.namespace(case.sizes), case, self.path)

    def _read_cases(self, function: Any) -> tuple[Case, ...]:
        try:
            given = list(function())
        except PROBLEM_CODE_ERRORS as error:
            raise UserError(explain(self.path, "cases()", error)) from error
        read = [_read_case(entry, self.path) for entry in given]
        names = [case.name for case in read]
        for name in names:
            if names.count(name) > 1:
                raise UserError(f"{self.path}: cases() has two cases named '{name}': give each its own name")
        for case in read:
            self.source.check_sizes(case.sizes)
        first = [case for case in read if case.name == "nominal"] or [Case("nominal")]
        return (*first, *(case for case in read if case.name != "nominal"))

    def _forward_names(self) -> tuple[str, ...]:
        for statement in self.source.tree.body:
            if isinstance(statement, ast.ClassDef) and statement.name == "Model":
                for part in statement.body:
                    if isinstance(part, ast.FunctionDef) and part.name == "forward":
                        arguments = part.args.posonlyargs + part.args.args
                        return tuple(argument.arg for argument in arguments[1:])
        # forward() is inherited or Model imported: only the executed class knows.
        forward = getattr(self.source.namespace({}).Model, "forward", None)
        if not callable(forward):
            raise UserError(f"{self.path}: Model has no forward(): a problem's Model is a torch.nn.Module")
        parameters = inspect.signature(forward).parameters.values()
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return tuple(parameter.name for parameter in parameters if parameter.kind in positional)[1:]


def _read_precision(given: Any, path: str) -> Precision:
    allowed = [item.name for item in fields(Precision)]
    if not isinstance(given, Mapping):
        raise UserError(f"{path}: PRECISION must be a dict with keys out of {', '.join(allowed)}")
    for key in given:
        if key not in allowed:
            raise UserError(f"{path}: PRECISION has the unknown key '{key}': use {', '.join(allowed)}")
    return Precision(**given)


def _read_rules(given: Any, path: str) -> Rules:
    if not isinstance(given, Mapping):
        raise UserError(f"{path}: RULES must be a dict with keys out of {', '.join(RULE_KEYS)}")
    for key, value in given.items():
        if key not in RULE_KEYS:
            raise UserError(f"{path}: RULES has the unknown key '{key}': use {', '.join(RULE_KEYS)}")
        if type(value) is not RULE_KEYS[key] or value < 0:
            raise UserError(f"{path}: RULES['{key}'] is {value!r}: give {_RULE_VALUES[key]}")
    return Rules(**given)


def _read_about(given: Any, known: About, path: str) -> About:
    choices = {"category": CATEGORIES, "regime": REGIMES}
    if not isinstance(given, Mapping) or not set(given) <= set(choices):
        raise UserError(f"{path}: ABOUT must be a dict with keys out of {', '.join(choices)}")
    for key, value in given.items():
        if value not in choices[key]:
            raise UserError(f"{path}: ABOUT['{key}'] is {value!r}: use one of {', '.join(choices[key])}")
    return replace(known, **given)


_RULE_VALUES = {
    "library_calls": "True or False",
    "calls_per_weights": "a number of calls, or 0",
    "keeps_state": "True or False",
    "any_stream": "True or False",
}


def _read_case(entry: Any, path: str) -> Case:
    if not isinstance(entry, Mapping) or "name" not in entry:
        raise UserError(f"{path}: every entry of cases() must be a dict with a 'name'")
    for key in entry:
        if key not in CASE_KEYS:
            raise UserError(
                f"{path}: case '{entry['name']}' has the unknown key '{key}': use {', '.join(CASE_KEYS)}"
            )
    case = Case(**entry)
    check_case(case, path)
    working_dtype(case.dtype, path)
    return case
