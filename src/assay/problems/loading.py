"""Find problems on disk and read each in the format it is written in.

Not covered: problems inside archives or behind URLs.
"""

from __future__ import annotations

import re
from pathlib import Path

from assay.problems.kernelbot import KernelBotProblem
from assay.problems.module_problem import ModuleProblem
from assay.problems.problem import Problem
from assay.problems.source import ModuleSource
from assay.records.errors import UserError

_LEVEL = re.compile(r"level\d+")


def load_problem(path: str | Path) -> Problem:
    """The problem at `path`: a .py file, or a folder with task.yml (KernelBot) or problem.py."""
    where = Path(path)
    if not where.exists():
        raise UserError(f"{where}: no such file or folder: check the path")
    if where.is_dir():
        if (where / "task.yml").is_file():
            return KernelBotProblem(where, where.resolve().name)
        if (where / "problem.py").is_file():
            return load_problem(where / "problem.py")
        raise UserError(f"{where}: has no task.yml and no problem.py: give a problem file or such a folder")
    if where.name == "task.yml":
        return load_problem(where.parent)
    if where.suffix != ".py":
        raise UserError(f"{where}: is no problem: give a .py file or a folder with task.yml")
    return ModuleProblem(where, _name(where))


def load_problems(folder: str | Path) -> list[Problem]:
    """Every problem of a folder: problem files, task folders, KernelBench levels or a checkout of it."""
    return [load_problem(path) for path in problem_paths(folder)]


def problem_paths(folder: str | Path) -> list[Path]:
    """Where the problems of a folder are, in order, those that cannot be read among them; a problem is a
    folder of one.
    """
    where = Path(folder)
    if where.is_file():
        return [where]
    if not where.is_dir():
        raise UserError(f"{where}: no such folder: check the path")
    found = _paths_in(where)
    if not found:
        raise UserError(f"{where}: holds no problems: give a folder of problem files or task folders")
    return found


def _paths_in(where: Path) -> list[Path]:
    if _is_task(where):
        return [where]
    levels = _levels(where / "KernelBench") or _levels(where)
    if levels:
        return [path for level in levels for path in _paths_in(level)]
    return [path for path in sorted(where.iterdir(), key=_numerically) if _is_task(path) or _is_problem(path)]


def _is_task(path: Path) -> bool:
    return (path / "task.yml").is_file() or (path / "problem.py").is_file()


def _is_problem(path: Path) -> bool:
    """A file with one of the two names is a problem, or a broken one; so is one that does not parse."""
    if path.suffix != ".py" or path.name.startswith("_"):
        return False
    try:
        return bool(ModuleSource(path).bound_names & {"Model", "get_inputs"})
    except UserError:
        return True


def _levels(where: Path) -> list[Path]:
    if not where.is_dir():
        return []
    folders = [entry for entry in where.iterdir() if entry.is_dir() and _LEVEL.fullmatch(entry.name)]
    return sorted(folders, key=_numerically)


def _numerically(path: Path) -> list[tuple[int, int, str]]:
    """Sort key that puts 2_x before 10_x."""
    parts = re.split(r"(\d+)", path.name)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts if part]


def _name(where: Path) -> str:
    """The file's stem; with its folder where the stem alone would not tell problems apart."""
    parent = where.resolve().parent.name
    if where.stem == "problem":
        return parent
    return f"{parent}_{where.stem}" if _LEVEL.fullmatch(parent) else where.stem
