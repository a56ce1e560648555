"""The proposer that needs nothing, on a real module, and a whole search that the real judge decides."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from daemon_process import environment
from synthetic_runs import verdict

from assay import lift
from assay.archive import SearchArchive
from assay.problems import load_problem
from assay.search import CompilerProposer
from assay.search.compiler import with_action
from assay.search.memory import Memory
from assay.search.protocol import Draft, Member, Reply, Request, View

PROBLEM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1) * torch.tanh(x)


rows = 64


def get_inputs():
    return [torch.randn(rows, 96)]
"""


@pytest.fixture(scope="module")
def problem_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("problem") / "softmax_tanh.py"
    path.write_text(PROBLEM)
    return path


@pytest.fixture(scope="module")
def first(problem_file: Path) -> Iterator[tuple[CompilerProposer, View, Reply]]:
    """The proposer, the view before it was asked, and its first answer."""
    problem = load_problem(problem_file)
    with closing(CompilerProposer(problem, problem.nominal(), "cpu", 0)) as proposer:
        view = View(problem, "cpu")
        yield proposer, view, proposer.propose(Request(1, proposer.operators[0]), view)


def member(number: int, draft: Draft, operator, parents: tuple[int, ...] = (), speed: float = 1.0) -> Member:
    told = verdict("softmax_tanh", "passed", speed)
    return Member(number, number, operator, parents, None, draft, str(number), None, "passed", {}, told, 1.0)


def judged(first: tuple[CompilerProposer, View, Reply]) -> View:
    proposer, view, reply = first
    members = tuple(member(k, d, proposer.operators[0]) for k, d in enumerate(reply.drafts, 1))
    return replace(view, members=members, learned=dict(reply.learned))


def test_the_first_answer_is_what_inductor_writes_and_what_usually_helps(first) -> None:
    _, _, reply = first
    assert [draft.actions[0] for draft in reply.drafts] == ["variant:base", "variant:base"]
    assert len(reply.drafts[0].actions) > 1 and reply.drafts[1].actions == ("variant:base",)
    for draft in reply.drafts:
        assert "torch._inductor" not in draft.source and "class ModelNew(Model)" in draft.source


def test_what_cannot_be_written_down_is_told(first, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*_: object) -> str:
        raise lift.CannotLift("a kernel's argument of type half a byte")

    proposer, view, _ = first
    monkeypatch.setattr(lift, "write", refusing)
    reply = proposer.propose(Request(1, proposer.operators[0]), view)
    assert reply.drafts == () and "half a byte" in reply.trouble


def test_a_list_of_actions_gives_the_same_file_again(first) -> None:
    proposer, _, reply = first
    view = judged(first)
    for draft in reply.drafts:
        again = proposer.rebuild(draft.actions, view)
        assert again is not None and again.source == draft.source
    assert proposer.rebuild(("variant:base", "no such action"), view) is None


@pytest.mark.parametrize("name", ["act", "tune"])
def test_a_step_adds_one_action_and_never_one_that_was_tried(first, name: str) -> None:
    proposer = first[0]
    operator = next(one for one in proposer.operators if one.name == name)
    view, seen = judged(first), set()
    plain = view.members[-1]
    for number in range(10, 60):
        reply = proposer.propose(Request(number, operator, (plain.id,)), view)
        if reply.exhausted:
            break
        (draft,) = reply.drafts
        assert draft.actions not in seen and len(set(draft.actions) - set(plain.draft.actions)) == 1
        assert ("=" in draft.note) == (name == "tune")
        seen.add(draft.actions)
        view = replace(view, members=(*view.members, member(number, draft, operator, (plain.id,))))
    assert seen and reply.exhausted


def test_parents_are_combined_where_both_began_alike(first) -> None:
    proposer = first[0]
    view = judged(first)
    act, combine = proposer.operators[1], proposer.operators[3]
    plain = view.members[-1]
    for number in (10, 11):
        (draft,) = proposer.propose(Request(number, act, (plain.id,)), view).drafts
        view = replace(view, members=(*view.members, member(number, draft, act, (plain.id,))))
    (both,) = proposer.propose(Request(12, combine, (10, 11)), view).drafts
    assert set(both.actions) == set(view.by_id[10].draft.actions) | set(view.by_id[11].draft.actions)
    stranger = member(20, replace(plain.draft, actions=("variant:other",)), act)
    view = replace(view, members=(*view.members, stranger))
    assert proposer.propose(Request(21, combine, (10, 20)), view).exhausted


def test_a_knob_that_was_set_is_set_anew() -> None:
    assert with_action(("variant:a", "k:X=4", "wide"), "k:X=8") == ("variant:a", "k:X=8", "wide")
    assert with_action(("variant:a", "k:X=4"), "k:Y=8") == ("variant:a", "k:X=4", "k:Y=8")
    assert with_action(("variant:a", "wide"), "wide") == ("variant:a", "wide")


@pytest.mark.alone
def test_the_real_judge_decides_a_search(problem_file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run.sqlite"
    words = [
        "search",
        problem_file,
        "--plain",
        "--rungs",
        "eager",
        "--evaluations",
        3,
        "--budget",
        0.1,
        "--run",
        run,
    ]
    done = subprocess.run(
        [sys.executable, "-m", "assay.cli.main", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(tmp_path),
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    assert "ended: " in done.stderr and "Traceback" not in done.stderr
    with SearchArchive(run) as archive:
        view = Memory(archive, load_problem(problem_file), "cpu").view()
    assert len(view.judged) >= 3
    assert [(m.id, m.verdict.findings) for m in view.judged if not m.is_right] == []
    assert (done.returncode == 0) == (tmp_path / ".assay/found" / f"{view.problem.name}.py").exists()
