"""`assay search` as its user meets it: a recorded search again, its end in words and JSON, and mistakes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted_search import PROBLEM, Scripted, drive, source

from assay.search import Limits

SEARCH = ("search", PROBLEM, "--plain")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "recorded.sqlite"
    drive(path, limits=Limits(evaluations=30))
    return path


Refused = Callable[..., tuple[object, str, str]]


@pytest.fixture
def replayed(refused: Refused, tmp_path: Path) -> Refused:
    def run(recorded: Path, *words: object) -> tuple[object, str, str]:
        files = ("--run", tmp_path / "run.sqlite", "--out", tmp_path / "found.py")
        return refused(
            *SEARCH, "--replay", recorded, *files, "--seed", 7, "--percent", 1000, *words, folder=tmp_path
        )

    return run


def test_a_recorded_search_ends_with_a_winner_and_its_file(
    recording: Path, replayed: Refused, tmp_path: Path
) -> None:
    code, _, err = replayed(recording, "--evaluations", 30, "--stalled", 50)
    assert code == 0, err
    assert "FASTER" in err and "confirmed by a fresh judge" not in err, "a recording confirms nothing"
    assert f"as {recording} says" in err
    assert "lineage: #" in err and "gain: structure" in err
    assert "class ModelNew" in (tmp_path / "found.py").read_text()
    assert "Traceback" not in err


def test_the_result_as_one_object(recording: Path, replayed: Refused, tmp_path: Path) -> None:
    code, out, _ = replayed(recording, "--evaluations", 20, "--json")
    told = json.loads(out)
    assert told["reason"] == "the evaluations are spent" and told["faster"] is (code == 0)
    assert told["replayed"] == str(recording)


def test_nothing_faster_is_said_plainly_and_is_exit_code_1(replayed: Refused, tmp_path: Path) -> None:
    class Slow(Scripted):
        def propose(self, request, view):
            reply = super().propose(request, view)
            drafts = tuple(type(d)(source(0.5 + request.id / 1000), ".py", d.name) for d in reply.drafts)
            return type(reply)(drafts, reply.ideas, seconds=1.0)

    drive(tmp_path / "slow", proposers=[Slow()], limits=Limits(evaluations=6))
    code, _, err = replayed(tmp_path / "slow", "--evaluations", 6)
    assert code == 1, err
    assert "Nothing beat compile" in err and "closest: #" in err
    assert not (tmp_path / "found.py").exists()


def test_the_same_command_goes_on(recording: Path, replayed: Refused, tmp_path: Path) -> None:
    replayed(recording, "--evaluations", 5)
    _, _, err = replayed(recording, "--evaluations", 9)
    assert "evaluations are kept" in err
    with sqlite3.connect(tmp_path / "run.sqlite") as db:
        judged = db.execute("SELECT count(*) FROM verdicts").fetchone()[0]
    assert judged >= 9


@pytest.mark.parametrize(
    "words, why",
    [
        (("search", "nothing.py"), "does not exist"),
        ((*SEARCH, "--propose", "queue"), "a queue needs both"),
        ((*SEARCH, "--propose", "none"), "nobody is left to propose"),
        ((*SEARCH, "--price", "3/15"), "give --model"),
        ((*SEARCH, "--model", "gpt"), "names no model"),
        ((*SEARCH, "--no-speed"), "a search needs times"),
        ((*SEARCH, "--replay", "nothing.sqlite"), "no such recording"),
        ((*SEARCH, "--from", "nothing.sqlite", "--device", "cpu"), "no such search"),
        (("search", PROBLEM.parents[2] / "suite" / "level1", "--plain"), "a search is for one problem"),
        ((*SEARCH, "--time", "nan"), "--time is a number"),
        ((*SEARCH, "--propose", "none", "--propose", "compiler"), "give it alone"),
        ((*SEARCH, "--replay", "r.sqlite", "--model", "openai:x"), "leave out --propose, --model"),
        ((*SEARCH, "--model", "openai:x", "--usd", "1"), "while a price is unknown"),
        ((*SEARCH, "--out", PROBLEM), "the problem or the search itself"),
        ((*SEARCH, "--out", PROBLEM.parent), "name a file that ends in"),
        ((*SEARCH, "--out", "found.sqlite"), "name a file that ends in"),
        ((*SEARCH, "--out", PROBLEM / "x.py"), "--out"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    words: tuple, why: str, refused: Refused, tmp_path: Path
) -> None:
    code, _, err = refused(*words, "--run", tmp_path / "r", folder=tmp_path)
    assert code == 2 and why in err, err
    assert "Traceback" not in err


def test_a_recording_of_another_problem_of_that_name_is_refused(refused: Refused, tmp_path: Path) -> None:
    drive(tmp_path / "recorded", limits=Limits(evaluations=3))
    changed = tmp_path / PROBLEM.parent.name / PROBLEM.name
    changed.parent.mkdir()
    changed.write_text(PROBLEM.read_text() + "\nanother = 1\n")
    words = ("search", changed, "--plain", "--replay", tmp_path / "recorded", "--run", tmp_path / "r.sqlite")
    code, _, err = refused(*words, folder=tmp_path)
    assert code == 2 and "changed since it was recorded" in err, err


def test_where_nothing_was_judged_there_is_no_result(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    words = (*SEARCH, "--propose", "none", "--model", "openai:x", "--model-url", "http://127.0.0.1:9/v1")
    words += ("--time", "1e-9", "--rungs", "eager", "--run", tmp_path / "r.sqlite")
    code, _, err = refused(*words, folder=tmp_path)
    assert code == 2 and "the time is up" in err and "Nothing was judged" in err, err
    assert "openai:x: the price" in err, "no picture in its place"


def test_without_a_compiler_it_says_so_and_begins_nothing(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    run = tmp_path / "r.sqlite"
    code, _, err = refused(*SEARCH, "--rungs", "eager", "--device", "cpu", "--run", run, folder=tmp_path)
    assert code == 2 and "no C++ compiler" in err, err


def test_another_search_is_not_written_over(recording: Path, replayed: Refused, tmp_path: Path) -> None:
    replayed(recording, "--evaluations", 3)
    code, _, err = replayed(recording, "--strategy", "serial")
    assert code == 2 and "another search" in err


def test_a_file_of_a_newer_version_is_refused(recording: Path, replayed: Refused, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "run.sqlite") as db:
        db.execute("CREATE TABLE facts (x)")
        db.execute(f"PRAGMA application_id = {0x41535359}")
        db.execute("PRAGMA user_version = 99")
    code, _, err = replayed(recording)
    assert code == 2 and "a newer Assay wrote it" in err
