"""The queue: what is asked, which files are answers, and how waiting ends."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic_runs import verdict

from assay.problems import load_problem
from assay.records import UserError, to_plain
from assay.search import queue_folder
from assay.search.protocol import Draft, Member, Operator, Reply, Request, View
from assay.search.queue_folder import Declined, claim, injected, look, open_requests
from assay.search.queue_proposer import ASK, IMPROVE, REPAIR, QueueProposer

PROBLEM = """
import torch

rows = 8


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0


def get_inputs():
    return [torch.randn(rows, 16)]
"""
KERNEL = "import torch\n\n\ndef forward(x):\n    return x.clamp(min=0) + 1.0\n"


@pytest.fixture
def view(tmp_path: Path) -> View:
    path = tmp_path / "relu_plus.py"
    path.write_text(PROBLEM)
    return View(load_problem(path), "cpu")


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    return queue_folder.open_folder(tmp_path / "queue")


def written(path: Path, text: str = KERNEL, *, age_s: float = 5.0) -> Path:
    path.write_text(text)
    then = time.time() - age_s
    os.utime(path, (then, then))
    return path


def member(number: int, status: str, source: str, ratio: float = 1.0) -> Member:
    told = verdict("relu_plus", status, ratio)
    draft = Draft(source, ".py", f"c{number}")
    operator = Operator("queue", "ask", "")
    return Member(
        number, number, operator, (), None, draft, "n", status=status, record=to_plain(told), verdict=told
    )


class Waiting:
    """A request in a thread of its own."""

    def __init__(self, propose: Callable[[], Reply]) -> None:
        self.replies: list[Reply] = []
        self._thread = threading.Thread(target=lambda: self.replies.append(propose()), daemon=True)
        self._thread.start()

    def end(self) -> Reply:
        self._thread.join(60)
        return self.replies[0]


def wait_for(path: Path) -> str:
    end = time.monotonic() + 60
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.01)
    return path.read_text()


def proposer(queue: Path, **settings: object) -> QueueProposer:
    return QueueProposer(queue, **settings)  # type: ignore[arg-type]


# ---- the proposer


def test_a_request_is_a_page_and_its_answer_a_draft(queue: Path, view: View) -> None:
    waiting = Waiting(lambda: proposer(queue).propose(Request(7, ASK), view))
    page = wait_for(queue / "0007-prompt.md")
    assert "`0007-answer.py`" in page and "`0007-skip`" in page and "torch.relu(x) + 1.0" in page
    assert open_requests(queue) == [7]
    written(queue / "0007-answer.py", f"# one pass over the rows\n{KERNEL}")
    reply = waiting.end()
    (draft,) = reply.drafts
    assert (draft.suffix, draft.note) == (".py", "one pass over the rows") and KERNEL in draft.source
    assert not reply.trouble and reply.cost_usd == 0.0
    assert (queue / "0007-answer.py").exists() and open_requests(queue) == []


def test_a_page_shows_the_parent_what_the_judge_said_and_the_best(queue: Path, view: View) -> None:
    slow, fast = "# slow\nx = '''\n```\n'''\n", "# fast\n"
    known = View(
        view.problem,
        "cpu",
        members=(
            member(1, "wrong", "# broken\n"),
            member(2, "passed", slow, 1.1),
            member(3, "passed", fast, 1.5),
        ),
    )
    asked = proposer(queue, timeout_s=0.0)
    assert "nobody answered request 4 in 0 s" in asked.propose(Request(4, REPAIR, (1,)), known).trouble
    repair = (queue / "0004-withdrawn.md").read_text()
    assert "# broken" in repair and "3 of 8 <elements> differ" in repair and "Repair it" in repair
    assert "1.500 times the speed" in repair and "# fast" in repair
    asked.propose(Request(5, IMPROVE, (2,)), known)
    improve = (queue / "0005-withdrawn.md").read_text()
    assert "1.100 times the speed" in improve and "2 of them right" in improve
    assert f"````python\n{slow.strip()}\n````" in improve, "a fence in the source must not end the block"


@pytest.mark.parametrize(("device", "suffix"), [("cpu", ".cpp"), ("cuda:0", ".cu")])
def test_a_page_names_the_languages_of_the_device(queue: Path, view: View, device: str, suffix: str) -> None:
    told = f"the device {device}"
    proposer(queue, described=told, timeout_s=0.0).propose(Request(1, ASK), View(view.problem, device))
    page = (queue / "0001-withdrawn.md").read_text()
    assert f"`0001-answer{suffix}`" in page and f"the device {device}" in page
    assert ("NVRTC" in page) == (suffix == ".cu")


def test_a_refusal_ends_the_wait_and_the_kind(queue: Path, view: View) -> None:
    waiting = Waiting(lambda: proposer(queue).propose(Request(2, ASK), view))
    wait_for(queue / "0002-prompt.md")
    queue_folder.decline(queue, 2, "no idea\nat all")
    assert waiting.end() == Reply(trouble="request 2 was declined: no idea", exhausted=True)


def test_being_stopped_ends_every_wait_and_withdraws_the_pages(queue: Path, view: View) -> None:
    stop = threading.Event()
    asked = proposer(queue, stop=stop)
    waits = [Waiting(lambda k=k: asked.propose(Request(k, ASK), view)) for k in (1, 2)]
    for number in (1, 2):
        wait_for(queue / f"000{number}-prompt.md")
    stop.set()
    assert [one.end().trouble for one in waits] == [
        f"stopped before request {k} was answered" for k in (1, 2)
    ]
    assert open_requests(queue) == [] and (queue / "0002-withdrawn.md").exists()


def test_what_is_asked_again_takes_the_answer_that_came_meanwhile(queue: Path, view: View) -> None:
    asked = proposer(queue, timeout_s=0.0)
    asked.propose(Request(3, ASK), view)
    written(queue / "0003-answer.py")
    assert len(asked.propose(Request(3, ASK), view).drafts) == 1


def test_an_answer_to_another_search_is_not_taken(queue: Path, view: View) -> None:
    asked = proposer(queue, timeout_s=0.0)
    first = View(view.problem, "cpu", members=(member(1, "passed", "# one\n"),))
    second = View(view.problem, "cpu", members=(member(1, "passed", "# two\n"),))
    asked.propose(Request(2, IMPROVE, (1,)), first)
    written(queue / "0002-answer.py")
    reply = asked.propose(Request(2, IMPROVE, (1,)), second)
    assert not reply.drafts and "answer to another request 2" in reply.trouble
    assert len(asked.propose(Request(2, IMPROVE, (1,)), first).drafts) == 1


def test_a_folder_that_is_gone_is_trouble_and_no_crash(queue: Path, view: View) -> None:
    asked = proposer(queue)
    for path in queue.iterdir():
        path.rmdir()
    queue.rmdir()
    assert "cannot be used" in asked.propose(Request(1, ASK), view).trouble
    queue.write_text("a file")
    with pytest.raises(UserError, match="as a queue"):
        QueueProposer(queue)


# ---- files


def test_an_answer_that_is_being_written_is_not_taken(queue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue_folder.ask(queue, 1, "page")
    monkeypatch.setattr(queue_folder, "SETTLED_S", 3600.0)
    written(queue / "0001-answer.py", "import to", age_s=10)
    assert look(queue, 1) is None
    written(queue / "0001-answer.py", "", age_s=7200)
    assert look(queue, 1) is None, "an empty file is the beginning of one"
    written(queue / "0001-answer.py", KERNEL, age_s=7200)
    assert look(queue, 1) == Draft(KERNEL, ".py", "queue_0001")


def test_a_clock_that_is_ahead_keeps_nothing_waiting(queue: Path) -> None:
    written(queue / "0001-answer.py", age_s=-900)
    assert isinstance(look(queue, 1), Draft)


@pytest.mark.parametrize(
    ("name", "text", "note"),
    [
        ("0001-answer.py", "# a note\nx = 1\n", "a note"),
        ("0001-answer.py", "\ufeff# a note\nx = 1\n", "a note"),
        ("0001-answer.py", "import torch\n# no note\n", ""),
        ("0001-answer.py", "#!/usr/bin/env python\n", ""),
        ("0001-answer.cu", "#include <cuda_fp16.h>\n", ""),
        ("0001-answer.cu", "// tiles of 64\n", "tiles of 64"),
        ("0001-answer.cpp", "// assay: out y = torch.empty_like(x)\n", ""),
        ("0001-answer.cxx", "// unrolled\n", "unrolled"),
    ],
)
def test_the_first_line_is_a_note_if_it_is_a_comment_for_people(
    queue: Path, name: str, text: str, note: str
) -> None:
    written(queue / name, text)
    found = look(queue, 1)
    assert isinstance(found, Draft) and found.note == note and found.suffix in (".py", ".cu", ".cpp")


def test_what_is_no_text_is_left_to_the_judge(queue: Path) -> None:
    (queue / "0001-answer.py").write_bytes(b"\xff\xfe" + b"x" * 2_000_000)
    os.utime(queue / "0001-answer.py", (1.0, 1.0))
    found = look(queue, 1)
    assert isinstance(found, Draft) and len(found.source) == queue_folder.MOST_BYTES


def test_unasked_files_are_taken_once_and_kept(queue: Path) -> None:
    written(queue / "inject" / "b.cu", "// second\n")
    written(queue / "inject" / "a.py", "# first\n")
    for ignored in (".a.py.swp", ".hidden.py", "notes.txt", "a.py~"):
        written(queue / "inject" / ignored)
    assert [(d.name, d.suffix, d.note) for d in injected(queue)] == [
        ("a", ".py", "first"),
        ("b", ".cu", "second"),
    ]
    assert injected(queue) == [] and (queue / "taken" / "a.py").read_text() == "# first\n"
    written(queue / "inject" / "a.py", "# third\n")
    assert [d.note for d in injected(queue)] == ["third"]
    assert sorted(path.suffix for path in (queue / "taken").iterdir()) == [".cu", ".py", ".py"]
    assert injected(queue.parent) == []


def test_an_unasked_file_that_is_being_written_waits(queue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_folder, "SETTLED_S", 3600.0)
    written(queue / "inject" / "a.py", age_s=10)
    assert injected(queue) == [] and (queue / "inject" / "a.py").exists()


# ---- whoever answers by tools


def test_a_prompt_is_shown_to_one_agent_until_its_time_is_up(queue: Path) -> None:
    for number in (12, 3):
        queue_folder.ask(queue, number, f"page {number}")
    first, second = claim(queue), claim(queue)
    assert first is not None and second is not None
    assert (first.number, first.text, second.number) == (3, "page 3", 12) and claim(queue) is None
    os.utime(queue / "0003-claimed", (1.0, 1.0))
    again = claim(queue)
    assert again is not None and again.number == 3
    queue_folder.ask(queue, 12, "another page 12")
    assert claim(queue) is not None, "a claim on another prompt is none on this one"


def test_a_folder_called_like_a_prompt_is_none(queue: Path) -> None:
    (queue / "0001-prompt.md").mkdir()
    assert open_requests(queue) == [] and claim(queue) is None


def test_tools_answer_open_prompts_alone(queue: Path) -> None:
    queue_folder.ask(queue, 1, "page")
    path = queue_folder.answer(queue, 1, KERNEL, ".py", "split\nrows")
    assert path.read_text() == f"# split rows\n{KERNEL}"
    for number in (1, 2):
        with pytest.raises(UserError, match=f"request {number} is not open"):
            queue_folder.answer(queue, number, KERNEL, ".py")
        with pytest.raises(UserError, match=f"request {number} is not open"):
            queue_folder.decline(queue, number)
    with pytest.raises(UserError, match="is no suffix"):
        queue_folder.inject(queue, KERNEL, ".txt", "a")
    with pytest.raises(UserError, match="no such queue"):
        open_requests(queue / "nowhere")


def test_a_refusal_by_hand_counts_without_words(queue: Path) -> None:
    queue_folder.ask(queue, 1, "page")
    (queue / "0001-skip").touch()
    assert look(queue, 1) == Declined("") and open_requests(queue) == []


def test_injected_names_stay_in_the_folder(queue: Path) -> None:
    path = queue_folder.inject(queue, KERNEL, ".py", "../../etc/pass wd", "n")
    assert path.parent == queue / "inject" and path.read_text() == f"# n\n{KERNEL}"
