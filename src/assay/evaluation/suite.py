"""The problems of a folder, those that cannot be read among them: a broken one must not hide the others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from assay.archive import Listed
from assay.problems import Problem, load_problem, problem_paths
from assay.records import About, UserError, digest


@dataclass(frozen=True, slots=True)
class Suite:
    """A folder's problems, by name."""

    problems: dict[str, Problem]
    listed: tuple[Listed, ...]
    """All of them, the broken ones with their trouble."""

    @property
    def troubled(self) -> tuple[Listed, ...]:
        return tuple(problem for problem in self.listed if problem.trouble)


def read_suite(folder: Path) -> Suite:
    """Every problem below the folder; a single problem is a suite of one."""
    problems: dict[str, Problem] = {}
    listed = []
    for path in problem_paths(folder):
        try:
            problem = load_problem(path)
        except UserError as error:
            listed.append(Listed(_name(path), digest(str(path)), str(path), About(), "", str(error)))
            continue
        if problem.name in problems:
            other = problems[problem.name].path
            raise UserError(f"{path} and {other} are both called {problem.name}: rename one")
        problems[problem.name] = problem
        source = problem.specification().source
        listed.append(Listed(problem.name, problem.digest, problem.path, problem.about, source))
    return Suite(problems, tuple(listed))


def _name(path: Path) -> str:
    return f"{path.resolve().parent.name}_{path.stem}"
