"""The end of a search: the smallest change that keeps the gain, and a fresh judge's word."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from scripted_search import PROBLEM, Believing, open_archive, source
from synthetic_runs import verdict

from assay.archive import SearchArchive
from assay.problems import load_problem
from assay.records import to_plain
from assay.search import Ending, Finish
from assay.search.finish import hunks, with_hunks
from assay.search.memory import answered, asked
from assay.search.novelty import normal_form
from assay.search.protocol import NOTHING, RIGHT_PARENT, Draft, Operator, Reply, Request, View

BEGIN, STEP = Operator("script", "begin", NOTHING), Operator("script", "step", RIGHT_PARENT)
WORTH = {"wide": 1.2, "useless": 1.001, "k0:XBLOCK=4": 1.1}


def rebuild(actions, view: View) -> Draft | None:
    speed = 0.95
    for action in actions[1:]:
        speed *= WORTH[action]
    return Draft(source(speed), ".py", "rebuilt", tuple(actions))


def keep(archive: SearchArchive, request: Request, draft: Draft) -> int:
    problem = load_problem(PROBLEM)
    archive.add_request(asked(problem, request))
    kept = archive.keep_answer(request.id, answered(problem, request, Reply((draft,)), 0.0))[0]
    return kept.candidate.id


def judge_all(archive: SearchArchive, workers: Believing) -> None:
    from assay.evaluation import Task, keep_done

    for planned in archive.waiting():
        workers.submit(Task(planned, str(PROBLEM)))
        done = workers.next_done()
        assert done is not None
        keep_done(archive, done)


def finished(tmp_path: Path, actions: tuple[str, ...], fresh: Believing | None = None) -> Ending:
    with open_archive(tmp_path / "s", load_problem(PROBLEM)) as archive:
        start = ("variant:default",)
        keep(archive, Request(1, BEGIN), rebuild(start, None))
        for k, _ in enumerate(actions):
            made = (*start, *actions[: k + 1])
            keep(archive, Request(k + 2, STEP, (k + 1,)), rebuild(made, None))
        judge_all(archive, Believing())
        finish = Finish(archive, load_problem(PROBLEM), "cpu", rebuild, lambda text: None)
        left_out = finish.shorten(Believing())
        return finish.confirm(lambda: nullcontext(fresh or Believing()), left_out)


def test_what_is_not_missed_is_left_out(tmp_path: Path) -> None:
    ending = finished(tmp_path, ("wide", "useless", "k0:XBLOCK=4"))
    assert ending.left_out == ("useless",)
    assert ending.winner and set(ending.winner.draft.actions) == {"variant:default", "wide", "k0:XBLOCK=4"}
    assert ending.verdict is not None


def test_the_gain_is_split_into_factors(tmp_path: Path) -> None:
    ending = finished(tmp_path, ("wide", "k0:XBLOCK=4"))
    parts = dict(ending.split)
    assert parts["knobs"] == pytest.approx(1.1, abs=1e-3)
    assert parts["structure"] == pytest.approx(0.95 * 1.2, abs=1e-3)
    assert parts["launch"] == parts["precision"] == 1.0


def test_nothing_faster_is_an_end_too(tmp_path: Path) -> None:
    assert finished(tmp_path, ("useless",)) == Ending(None, None, (), (), ())


def test_a_fresh_judge_has_the_last_word(tmp_path: Path) -> None:
    class Strict(Believing):
        """Says that everything is wrong."""

        def next_done(self):
            done = super().next_done()
            told = to_plain(verdict(done.task.candidate.problem, "wrong"))
            return type(done)(done.task, done.worker, {"verdict": told})

    ending = finished(tmp_path, ("wide", "k0:XBLOCK=4"), Strict())
    assert ending.winner is None
    assert ending.refused and all("wrong before a fresh judge" in line for line in ending.refused)


def test_a_simpler_one_that_was_only_measured_badly_is_not_as_fast(tmp_path: Path) -> None:
    class Unsure(Believing):
        """Cannot say how fast the slower one is at best."""

        def next_done(self):
            done = super().next_done()
            ratio = done.reply["verdict"]["speed"]["ratio"]
            if ratio["middle"] < 1.2:
                ratio["high"] = 2.5
            return done

    with open_archive(tmp_path / "s", load_problem(PROBLEM)) as archive:
        keep(archive, Request(1, BEGIN), rebuild(("variant:default", "wide"), None))
        keep(archive, Request(2, STEP, (1,)), rebuild(("variant:default", "wide", "k0:XBLOCK=4"), None))
        judge_all(archive, Unsure())
        finish = Finish(archive, load_problem(PROBLEM), "cpu", rebuild, lambda text: None)
        ending = finish.confirm(lambda: nullcontext(Believing()), ())
    assert ending.winner is not None and "k0:XBLOCK=4" in ending.winner.draft.actions


def test_knobs_are_polished_only_beyond_noise(tmp_path: Path) -> None:
    speeds = iter((1.141, 1.3, 1.301, 1.2))

    def tune(request: Request, view: View) -> Reply:
        made = next(speeds, None)
        if made is None:
            return Reply(exhausted=True)
        start = view.by_id[request.parents[0]].draft.actions
        tuned.append(request.parents[0])
        return Reply((Draft(source(made), ".py", "tuned", (*start, f"k0:XBLOCK={len(tuned)}")),))

    tuned: list[int] = []
    with open_archive(tmp_path / "s", load_problem(PROBLEM)) as archive:
        keep(archive, Request(1, BEGIN), rebuild(("variant:default", "wide"), None))
        judge_all(archive, Believing())
        finish = Finish(archive, load_problem(PROBLEM), "cpu", rebuild, lambda text: None)
        finish.polish(Believing(), tune)
        best = finish.view().best
    assert tuned == [1, 1, 3, 3], "1.141 is no better than 1.14 beyond noise, 1.301 no better than 1.3"
    assert best is not None and best.operator.key == "finish/polish"


def test_changes_of_a_text_can_be_left_out_one_by_one() -> None:
    before = "a\nb\nc\nd\ne\n"
    after = "a\nB\nc\nd\ne\nf\n"
    parts = hunks(before, after)
    assert len(parts) == 2
    assert with_hunks(before, after, parts) == after
    assert with_hunks(before, after, parts[:1]) == "a\nB\nc\nd\ne\n"
    assert with_hunks(before, after, []) == before


PYTHON = '''
"""A kernel."""
import torch

def kernel(x, BLOCK=4):
    # doubles
    y = x * 2
    return y

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return kernel(x, BLOCK=8)
'''


@pytest.mark.parametrize(
    "change",
    [
        ("# doubles", "# multiplies by two"),
        ('"""A kernel."""', '"""Another."""'),
        ("y = x * 2\n    return y", "result = x * 2\n    return result"),
        ("BLOCK", "WIDTH"),
        ("def kernel", "def fast"),
    ],
)
def test_names_and_comments_make_no_other_program(change: tuple[str, str]) -> None:
    other = (
        PYTHON.replace(*change).replace("kernel(x, ", "fast(x, ")
        if "def fast" in change
        else (PYTHON.replace(*change))
    )
    assert other != PYTHON and normal_form(other, ".py") == normal_form(PYTHON, ".py")


@pytest.mark.parametrize(
    "change", [("* 2", "* 3"), ("BLOCK=8", "BLOCK=16"), ("x * 2", "x + 2"), ("ModelNew", "Other")]
)
def test_another_program_is_another(change: tuple[str, str]) -> None:
    assert normal_form(PYTHON.replace(*change), ".py") != normal_form(PYTHON, ".py")


def test_code_in_other_languages_is_compared_without_spacing() -> None:
    first = "// assay: call f(x)\n#define A 1\nint f(int x) { return x + A; } // adds\n"
    second = "// assay: call f(x)\n#define A 1\nint f(int x)\n{\n  return x + A;\n}\n"
    assert normal_form(first, ".cpp") == normal_form(second, ".cpp")
    assert normal_form(first.replace("f(x)\n#", "f(y)\n#"), ".cpp") != normal_form(first, ".cpp")
    assert normal_form(first.replace("A 1", "A 2"), ".cpp") != normal_form(first, ".cpp")


def test_what_does_not_parse_still_has_a_form() -> None:
    assert normal_form("def (:", ".py") == normal_form("def  (:\n", ".py") != normal_form("def )", ".py")
