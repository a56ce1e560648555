"""Where candidates come from: a folder of files, a replay file, an earlier run.

A source is asked for one turn of one sample at a time, with the verdicts of the turns before. These three
know every turn beforehand; a model (model_source.py) does not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from assay.archive import Archive, Judged, Planned
from assay.candidates import SUFFIXES
from assay.evaluation.suite import Suite
from assay.records import UserError

_KERNELBENCH = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel")
_FIELDS = {"problem": str, "sample": int, "turn": int, "source": str, "suffix": str, "name": str}
_SHOWN = 3
_MOST = 1 << 31


class Source(Protocol):
    """Candidates by problem, sample and turn."""

    label: str
    """What the run is of: a folder, a model."""
    prompts: str
    """A digest of what it is told; empty where nobody is told anything."""

    def samples(self, problem: str) -> Sequence[int]:
        """Numbers of the samples there will be; none where it has nothing for the problem."""
        ...

    def propose(self, problem: str, sample: int, history: Sequence[Judged]) -> Planned | None:
        """The next turn after those in `history`; None if that was the last. May be called from a thread."""
        ...


class _Known:
    """Candidates that are all there."""

    prompts = ""

    def __init__(self, label: str, candidates: Sequence[Planned]) -> None:
        self.label = label
        self._turns: dict[tuple[str, int], dict[int, Planned]] = {}
        for one in candidates:
            turns = self._turns.setdefault((one.problem, one.sample), {})
            if one.turn in turns:
                where = f"sample {one.sample}, turn {one.turn} of {one.problem}"
                raise UserError(f"{label}: there are two candidates for {where}")
            turns[one.turn] = one

    def samples(self, problem: str) -> Sequence[int]:
        return sorted(sample for name, sample in self._turns if name == problem)

    def strangers(self, suite: Suite) -> list[str]:
        """Problems it has candidates for that the suite does not have."""
        return sorted({name for name, _ in self._turns} - set(suite.problems))

    def propose(self, problem: str, sample: int, history: Sequence[Judged]) -> Planned | None:
        turns = self._turns.get((problem, sample), {})
        for one in history:
            known = turns.get(one.candidate.turn)
            if known is not None and known.source != one.candidate.source:
                where = f"sample {sample}, turn {known.turn} of {problem}"
                raise UserError(f"{self.label}: {where} has changed since the run began: start a new run")
        done = {one.candidate.turn for one in history}
        turn = min((turn for turn in turns if turn not in done), default=None)
        if turn is None:
            return None
        return replace(turns[turn], parent=history[-1].candidate.id if history else None)


class FolderSource(_Known):
    """Files called after their problems: PROBLEM.py, PROBLEM/ANY.py, levelN/PROBLEM.py, or as KernelBench
    names samples.
    """

    def __init__(self, folder: Path, suite: Suite) -> None:
        self.unmatched: list[Path] = []
        """Files that belong to no problem of the suite."""
        if not folder.is_dir():
            raise UserError(f"{folder}: no such folder of candidates: check the path")
        placed: dict[str, list[tuple[int | None, Path]]] = {}
        for path in sorted(p for p in folder.rglob("*") if p.suffix in SUFFIXES and p.is_file()):
            found = _problem_of(path.relative_to(folder), suite)
            if found is None:
                self.unmatched.append(path)
            else:
                placed.setdefault(found[0], []).append((found[1], path))
        if not placed:
            raise UserError(f"{folder}: no file is called after a problem of the suite{_examples(suite)}")
        super().__init__(
            str(folder), [one for name, files in placed.items() for one in _numbered(name, files)]
        )


def _numbered(problem: str, files: list[tuple[int | None, Path]]) -> list[Planned]:
    """Samples by the numbers in their names, where all have one; else in the order of their names."""
    by_name = all(number is not None for number, _ in files)
    return [
        Planned(
            problem, number if by_name and number is not None else k, 0, path.stem, path.suffix, _text(path)
        )
        for k, (number, path) in enumerate(files)
    ]


def _problem_of(path: Path, suite: Suite) -> tuple[str, int | None] | None:
    parent = path.parent.name
    if found := _KERNELBENCH.fullmatch(path.stem):
        level, number, sample = map(int, found.groups())
        start = f"level{level}_{number}_"
        return next(((name, sample) for name in suite.problems if name.startswith(start)), None)
    for name in (path.stem, f"{parent}_{path.stem}"):
        if name in suite.problems:
            return name, None
    for name in (parent, f"{path.parent.parent.name}_{parent}"):
        if name in suite.problems:
            return name, None
    return None


def _examples(suite: Suite) -> str:
    names = sorted(suite.problems)[:_SHOWN]
    return f", such as {', '.join(f'{name}.py' for name in names)}" if names else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}): save it as UTF-8 text") from error


class ReplaySource(_Known):
    """Lines of JSON, each one candidate: what a model said before, to be judged again."""

    def __init__(self, path: Path) -> None:
        # Split at line feeds alone: JSON leaves other separators of lines as they are.
        lines = [(k, line) for k, line in enumerate(_text(path).split("\n"), 1) if line.strip()]
        if not lines:
            raise UserError(f"{path}: holds no candidates")
        super().__init__(str(path), [_read_line(line, k, path) for k, line in lines])


def _read_line(line: str, number: int, path: Path) -> Planned:
    try:
        given: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}:{number}: is no JSON ({error}): was the file cut short?") from error
    if not isinstance(given, dict) or "problem" not in given or "source" not in given:
        raise UserError(f'{path}:{number}: must be an object with at least "problem" and "source"')
    values: dict[str, Any] = {"sample": 0, "turn": 0, "suffix": ".py", **given}
    values.setdefault("name", f"{values['problem']}_{values['sample']}_{values['turn']}")
    cost = values.pop("cost_usd", None)
    for key, value in values.items():
        if key not in _FIELDS or type(value) is not _FIELDS[key] or not _is_storable(value):
            raise UserError(f"{path}:{number}: {key!r} is not as it should be: see docs/evaluate.md")
    if cost is not None and (type(cost) not in (int, float) or not 0 <= cost <= _MOST):
        raise UserError(f"{path}:{number}: cost_usd must be a number of dollars")
    return Planned(**values, cost_usd=None if cost is None else float(cost))


def _is_storable(value: str | int) -> bool:
    """Numbers count from 0; JSON can write half of a surrogate pair, UTF-8 cannot."""
    if isinstance(value, int):
        return 0 <= value <= _MOST
    return value == value.encode("utf-8", "replace").decode()


class RunSource(_Known):
    """The candidates of an earlier run."""

    def __init__(self, path: Path) -> None:
        with Archive(path) as archive:
            label = str(archive.facts().get("label", path.stem))
            candidates = [one.candidate for one in archive.judged()] + archive.waiting()
        super().__init__(label, [replace(one, id=0, parent=None) for one in candidates])
