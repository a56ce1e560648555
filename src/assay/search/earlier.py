"""What earlier searches know: their best kernels for the same problem, and which actions have helped.

Nothing is believed: a kernel from elsewhere is judged like any other.
"""

from __future__ import annotations

import json
from pathlib import Path

from assay.archive import SearchArchive
from assay.problems import Problem, load_problem
from assay.records import UserError
from assay.search.memory import Memory
from assay.search.odds import EARLIER, summary
from assay.search.protocol import NOTHING, Draft, Operator, Reply, Request, View

NAME = "earlier"
MOST = 3
"""Kernels taken over from each archive."""


class EarlierProposer:
    """The best kernels of other archives, one for each request."""

    name = NAME
    operators = (Operator(NAME, "recall", NOTHING),)

    def __init__(self, drafts: tuple[Draft, ...], taught: str) -> None:
        self._drafts = drafts
        self._taught = taught

    @staticmethod
    def read(paths: tuple[Path, ...], problem: Problem, device: str) -> EarlierProposer:
        views = [view for path in paths for view in _views(path, problem, device)]
        drafts = [
            Draft(m.draft.source, m.draft.suffix, m.draft.name, (), f"{m.middle:.2f}x in an earlier search")
            for view in views
            if view.problem.name == problem.name
            for m in view.ranked[:MOST]
        ]
        return EarlierProposer(tuple(drafts), json.dumps(summary(views)))

    def propose(self, request: Request, view: View) -> Reply:
        asked = [
            one for one in view.asked if one.operator.key == request.operator.key and one.id < request.id
        ]
        index = len(asked)
        taught = {EARLIER: self._taught}
        if index >= len(self._drafts):
            return Reply(exhausted=True, learned=taught)
        return Reply((self._drafts[index],), exhausted=index + 1 == len(self._drafts), learned=taught)


def _views(path: Path, problem: Problem, device: str) -> list[View]:
    """One for every problem of the archive; the problem at hand may lie elsewhere now."""
    if not path.is_file():
        raise UserError(f"{path}: no such search: --from takes the file of an earlier one")
    with SearchArchive(path) as archive:
        views = []
        for listed in archive.problems():
            if listed.name == problem.name:
                views.append(Memory(archive, problem, device).view())
            elif Path(listed.path).exists():
                views.append(Memory(archive, load_problem(listed.path), device).view())
    return views
