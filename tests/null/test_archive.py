"""A run's file: what is counted once, what is refused, what survives."""

from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path

import pytest
from synthetic_runs import SOURCE, verdict, write_run

from assay.archive import NO_VERDICT, Archive, Listed, Planned, Transcript
from assay.records import About, UserError

PROBLEM = Listed("p", "d1", "p.py", About("norm", "memory", 1), "text")


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    opened = Archive(tmp_path / "run.sqlite", create=True)
    opened.add_problem(PROBLEM)
    return opened


def planned(sample: int = 0, turn: int = 0, source: str = SOURCE) -> Planned:
    return Planned("p", sample, turn, "c", ".py", source)


def test_what_is_written_is_read_again_by_another_process_of_the_same_run(
    archive: Archive, tmp_path: Path
) -> None:
    number = archive.add(planned())
    archive.set_fact("policy", {"speed": False})
    archive.keep_verdict(number, verdict("p", "passed", 1.5), "w", 2.0)
    archive.close()
    with Archive(tmp_path / "run.sqlite") as again:
        assert again.facts() == {"policy": {"speed": False}} and again.problems() == [PROBLEM]
        (one,) = again.judged()
        assert one.verdict() == verdict("p", "passed", 1.5)
        assert one.candidate == Planned("p", 0, 0, "c", ".py", SOURCE, id=number) and one.worker == "w"


def test_a_verdict_that_comes_twice_is_counted_once(archive: Archive) -> None:
    number = archive.add(planned())
    assert archive.keep_verdict(number, verdict("p", "wrong"), "first", 1.0)
    assert not archive.keep_verdict(number, verdict("p", "passed"), "second", 1.0)
    assert not archive.keep_failure(number, "late", "third", 1.0)
    assert [(one.status, one.worker) for one in archive.judged()] == [("wrong", "first")]
    assert archive.counts() == (1, 1) and archive.waiting() == []


def test_a_candidate_is_known_by_its_place(archive: Archive) -> None:
    first = archive.add(planned())
    assert archive.add(planned()) == first and archive.add(planned(sample=1)) != first
    with pytest.raises(UserError, match="has changed since the run began"):
        archive.add(planned(source="other"))
    assert archive.counts() == (2, 0)


def test_a_problem_that_changed_is_another(archive: Archive) -> None:
    archive.add_problem(PROBLEM)
    with pytest.raises(UserError, match="p has changed since the run began"):
        archive.add_problem(Listed("p", "d2", "p.py", About(), "text"))


def test_what_waits_comes_by_turn_then_problem_then_sample(archive: Archive) -> None:
    for sample, turn in ((1, 0), (0, 1), (0, 0)):
        archive.add(planned(sample, turn))
    assert [(one.sample, one.turn) for one in archive.waiting()] == [(0, 0), (1, 0), (0, 1)]


def test_failures_of_the_judge_can_be_tried_again(archive: Archive) -> None:
    failed, unreadable = archive.add(planned()), archive.add(planned(1))
    archive.keep_failure(failed, "out of memory", "w", 1.0)
    archive.keep_unreadable(unreadable, "no kernel in it", "w", 1.0)
    assert [(one.status, one.verdict()) for one in archive.judged()] == [
        (NO_VERDICT, None),
        ("unreadable", None),
    ]
    assert archive.forget_failures() == 1
    assert [one.id for one in archive.waiting()] == [failed]


def test_a_candidate_without_a_problem_is_not_kept(archive: Archive) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        archive.add(Planned("nobody", 0, 0, "c", ".py", "a text of its own"))
    assert archive.counts() == (0, 0)
    assert archive._db.execute("SELECT count(*) FROM sources WHERE text LIKE 'a text%'").fetchone()[0] == 0


def test_there_is_no_such_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no run"):
        Archive(tmp_path / "none.sqlite")
    assert not (tmp_path / "none.sqlite").exists()


def test_other_files_are_no_runs(tmp_path: Path) -> None:
    text = tmp_path / "a.sqlite"
    text.write_text("not a database, but long enough to be taken for one" * 40)
    with pytest.raises(UserError, match="is no run, or is damaged"):
        Archive(text)
    other = tmp_path / "b.sqlite"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE somebody (s TEXT)")
    with pytest.raises(UserError, match="but no run of Assay's"):
        Archive(other)


def test_a_run_cut_short_is_damaged_and_says_so(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run.sqlite", 20, 3)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError, match="damaged"):
        Archive(path)


def test_a_newer_schema_is_refused_with_both_numbers(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run.sqlite", 1, 1)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(UserError, match="schema 99, this one knows 3"):
        Archive(path)


@pytest.mark.parametrize(
    "edit, why",
    [
        ("UPDATE verdicts SET status = 'passed' WHERE status = 'wrong'", "its record says otherwise"),
        ("UPDATE verdicts SET record = 'no JSON' WHERE status = 'wrong'", "the verdict on .* is damaged"),
        ("UPDATE verdicts SET record = '{}' WHERE status = 'wrong'", "the verdict on .* is damaged"),
        ("UPDATE facts SET value = 'no JSON'", "is no run, or is damaged"),
        ("DROP TABLE transcripts", "is no run, or is damaged"),
    ],
)
def test_what_was_edited_by_hand_is_found_out(tmp_path: Path, edit: str, why: str) -> None:
    path = write_run(tmp_path / "run.sqlite", 6, 2, 2)
    with sqlite3.connect(path) as db:
        db.execute(edit)
    db.close()
    with pytest.raises(UserError, match=why), Archive(path) as archive:
        list(archive.judged())


def test_an_empty_file_is_no_run_and_stays_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(UserError, match="there is no run"):
        Archive(tmp_path / "empty")
    assert (tmp_path / "empty").read_bytes() == b""


@pytest.mark.parametrize("name", ["folder", "file/run.sqlite"])
def test_a_place_where_no_run_can_be_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="name another with --run"):
        Archive(tmp_path / name, create=True)


def test_a_transcript_is_kept_with_its_candidate(archive: Archive) -> None:
    said = Transcript("openai:tiny", "be brief", "write", "an answer", None, 5, 1.5)
    number = archive.add(dataclasses.replace(planned(), transcript=said))
    assert archive.transcript(number) == said
    assert archive.transcript(archive.add(planned(sample=1))) is None
