"""A recorded search again: every candidate from the parents that it was made of."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from scripted_search import PROBLEM, Scripted, drive, source

from assay.archive import SearchArchive
from assay.records import UserError
from assay.search import Limits, Pace
from assay.search.protocol import Reply, Request, View
from assay.search.snapshot import INJECT, Command

Refused = Callable[..., tuple[object, str, str]]
AT_ONCE = Pace(open=4, waiting=4)


class Jittery(Scripted):
    """Answers overtake each other; a person could have written them."""

    def propose(self, request: Request, view: View) -> Reply:
        time.sleep(random.Random(request.id).uniform(0, 0.03))
        reply = super().propose(request, view)
        drafts = [replace(one, source=f"{one.source}# {request.id}\n", actions=()) for one in reply.drafts]
        return replace(reply, drafts=tuple(drafts))


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """With a file that somebody gave by hand."""
    given = tmp_path / "given.py"
    given.write_text(source(0.9))
    path, orders = tmp_path / "recorded.sqlite", (Command(INJECT, path=str(given)),)
    drive(path, proposers=[Jittery()], limits=Limits(evaluations=30), commands=orders, pace=AT_ONCE)
    return path


@pytest.fixture
def replayed(refused: Refused, tmp_path: Path) -> Callable[..., Path]:
    def run(recorded: Path, *words: object, into: str = "run.sqlite") -> Path:
        run, out = tmp_path / into, tmp_path / "found.py"
        limits = ("--percent", 1000, "--stalled", 99, *words)
        files = ("--replay", recorded, "--run", run, "--out", out)
        code, _, err = refused("search", PROBLEM, "--plain", *files, *limits, folder=tmp_path)
        if code == 2:
            raise UserError(err)
        assert code in (0, 1) and "Traceback" not in err, err
        return run

    return run


def notes(path: Path) -> list[str]:
    with SearchArchive(path) as archive:
        return [one.note for one in archive.drafted()]


def numbered(path: Path) -> list[tuple[int, str, tuple[int, ...], str | None]]:
    """Every candidate: its number, its text, its parents, and the idea behind it."""
    with SearchArchive(path) as archive:
        requests = {one.id: one for one in archive.requests()}
        ideas = {one.id: one.title for one in archive.ideas()}
        return [
            (
                one.candidate.id,
                one.candidate.source,
                requests[one.request].parents,
                None if one.idea is None else ideas[one.idea],
            )
            for one in archive.drafted()
        ]


def by_text(path: Path) -> list[tuple[str, tuple[str, ...], str | None]]:
    known = numbered(path)
    texts = {number: text for number, text, _, _ in known}
    return [(text, tuple(texts[one] for one in parents), idea) for _, text, parents, idea in known]


@pytest.mark.parametrize("words", [(), ("--seed", 9, "--width", 5), ("--strategy", "serial")])
def test_the_tree_is_the_recorded_one(
    recording: Path, replayed: Callable[..., Path], words: tuple[object, ...]
) -> None:
    recorded = numbered(recording)
    assert any(parents for _, _, parents, _ in recorded) and any(idea for *_, idea in recorded)
    run = replayed(recording, "--evaluations", 99, *words)
    assert numbered(run)[: len(recorded)] == recorded, "what comes after them the end of the replay tried"
    assert notes(run)[: len(recorded)] == notes(recording)


def test_what_ends_early_goes_on_with_the_same_tree(replayed: Callable[..., Path], tmp_path: Path) -> None:
    drive(tmp_path / "recorded.sqlite", proposers=[Jittery()], limits=Limits(evaluations=30))
    first = replayed(tmp_path / "recorded.sqlite", "--evaluations", 25, into="first.sqlite")
    told = notes(tmp_path / "recorded.sqlite")[:20]
    assert notes(first)[:20] == told and any("deleted lines" in note for note in told)
    with SearchArchive(first) as archive:
        kinds = {one.operator for one in archive.requests()}
    assert "ablate" in kinds, "the end of the replay tried something of its own"
    for evaluations in (5, 9, 99):
        run = replayed(first, "--evaluations", evaluations, into="again.sqlite")
    found = by_text(run)
    for one in by_text(first):
        assert one in found


def test_a_file_given_by_hand_meanwhile_moves_nothing(
    recording: Path, replayed: Callable[..., Path], tmp_path: Path
) -> None:
    run = replayed(recording, "--evaluations", 6)
    with SearchArchive(run) as archive:
        before = archive.next_request()
    orders = (Command(INJECT, path=str(tmp_path / "given.py")),)
    (tmp_path / "given.py").write_text(source(0.7))
    drive(run, limits=Limits(evaluations=1), commands=orders)
    with SearchArchive(run) as archive:
        assert archive.next_request() > before
    found = by_text(replayed(recording, "--evaluations", 99))
    for one in by_text(recording):
        assert one in found


def test_a_replay_of_another_recording_does_not_go_on(
    recording: Path, replayed: Callable[..., Path], tmp_path: Path
) -> None:
    drive(tmp_path / "other.sqlite", limits=Limits(evaluations=9))
    for first, second in ((recording, "other.sqlite"), (tmp_path / "other.sqlite", "recorded.sqlite")):
        run = f"{second}.run"
        replayed(first, "--evaluations", 99, into=run)
        with pytest.raises(UserError, match=r"no replay of .*: name a new one with --run\n$"):
            replayed(tmp_path / second, "--evaluations", 99, into=run)
