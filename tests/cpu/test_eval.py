"""`assay eval` with real workers on the CPU: sources, resuming, workers that die, bad input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from daemon_process import environment

from assay.archive import Archive, Judged, Planned
from assay.cli.main import cli
from assay.evaluation import Crew, FolderSource, ReplaySource, RunSource, crew, read_suite
from assay.evaluation.process import WorkerProcess
from assay.records import UserError

PROBLEM = """
import torch

rows = 16
cols = 24


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.{operator}(x)


def get_inputs():
    return [torch.rand(rows, cols) + 0.5]


ABOUT = {{"category": "elementwise", "regime": "memory"}}
"""
RIGHT = "import torch\n\ndef forward(x):\n    return torch.{}(x)\n"
WRONG = "import torch\n\ndef forward(x):\n    return torch.{}(x) * 1.5\n"
OPERATORS = ("exp", "sqrt")
ON_CPU = ("--no-speed", "--device", "cpu")
Refused = Callable[..., tuple[object, str, str]]


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / "suite" / "level1"
    folder.mkdir(parents=True)
    for name in OPERATORS:
        (folder / f"{name}.py").write_text(PROBLEM.format(operator=name))
    return folder.parent


@pytest.fixture
def candidates(tmp_path: Path) -> Path:
    folder = tmp_path / "candidates"
    for name in OPERATORS:
        (folder / f"level1_{name}").mkdir(parents=True)
        (folder / f"level1_{name}" / "a.py").write_text(RIGHT.format(name))
        (folder / f"level1_{name}" / "b.py").write_text(WRONG.format(name))
    return folder


def started(folder: Path, *words: object) -> subprocess.Popen[str]:
    """The command line in a process of its own."""
    command = [sys.executable, "-m", "assay.cli.main", *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(folder)
    )


def judged(run: Path) -> list[Judged]:
    with Archive(run) as archive:
        return list(archive.judged())


def so_far(run: Path) -> int:
    """How many are judged; none where the run is still being made."""
    try:
        return len(judged(run))
    except UserError:
        return 0


def ends(run: Path) -> dict[str, str]:
    return {f"{one.candidate.problem}/{one.candidate.name}": one.status for one in judged(run)}


EXPECTED = {
    "level1_exp/a": "passed",
    "level1_exp/b": "wrong",
    "level1_sqrt/a": "passed",
    "level1_sqrt/b": "wrong",
}


def test_a_folder_is_judged_and_a_second_time_nothing_is_left_to_do(
    suite: Path, candidates: Path, tmp_path: Path, refused: Refused
) -> None:
    (suite / "level1" / "broken.py").write_text("def get_inputs(:\n")
    (candidates / "level1_exp" / "c.py").write_text("no kernel at all")
    run = tmp_path / "run.sqlite"
    command = ("eval", suite, "--candidates", candidates, "--run", run, "--rungs", "eager,compile", *ON_CPU)
    first = started(tmp_path, *command, "--json")
    *lines, last = first.communicate(timeout=240)[0].splitlines()
    told = json.loads(last)
    assert first.returncode == 0 and ends(run) == {**EXPECTED, "level1_exp/c": "unreadable"}
    assert told["all_problems"]["correct"] == 0.4 and told["all_problems"]["solved"] == 2
    # One that is broken hides no other.
    assert "syntax error" in told["troubled"]["level1_broken"] and any("left out" in line for line in lines)
    before = judged(run)
    assert {one.worker for one in before} == {"cpu/0", "cpu/1"}
    code, out, _ = refused(*command, "--jobs", 1, folder=tmp_path)
    assert code == 0 and judged(run) == before
    assert "5 candidates for 2 problems, 2 solved" in out
    published_it_holds(run, suite, refused)


def published_it_holds(run: Path, suite: Path, refused: Refused) -> None:
    """But for the verdicts that were made up before it was published."""
    bundle = run.with_suffix(".assay.zip")
    with Archive(run) as archive:
        honest = next(one for one in archive.judged() if one.status == "passed")
        archive._db.execute(
            "UPDATE verdicts SET status = 'passed', record = ? WHERE status = 'wrong'",
            (json.dumps(honest.record),),
        )
    assert refused("publish", run, folder=run.parent)[0] == 0
    verifying = started(run.parent, "verify", bundle, "--device", "cpu", "--suite", suite)
    told, _ = verifying.communicate(timeout=240)
    assert verifying.returncode == 1 and "3 of 5 hold" in told
    assert "published as passed, found wrong" in told


def test_whatever_dies_the_run_goes_on_and_counts_nothing_twice(
    suite: Path, candidates: Path, tmp_path: Path, refused: Refused
) -> None:
    run = tmp_path / "run.sqlite"
    command = ("eval", suite, "--candidates", candidates, "--run", run, "--jobs", 1, *ON_CPU)
    for path in candidates.rglob("*.py"):  # slow enough to be in the midst of it
        path.write_text(f"import time\n\ntime.sleep(1.5)\n{path.read_text()}")

    def until(count: int) -> list[Judged]:
        deadline = time.monotonic() + 120
        while so_far(run) < count:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return judged(run)

    process = started(tmp_path, *command)
    until(1)
    os.kill(_worker_of(process.pid), signal.SIGKILL)
    until(2)
    process.send_signal(signal.SIGTERM)  # as Ctrl-C, which whoever runs tests side by side ignores
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "are judged and kept in" in said
    kept = judged(run)
    process = started(tmp_path, *command)
    until(len(kept) + 1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert refused(*command, folder=tmp_path)[0] == 0
    assert ends(run) == EXPECTED and [one for one in judged(run) if one in kept] == kept


def _worker_of(pid: int) -> int:
    """The worker process a driver has started, or 0."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            if b"assay.evaluation.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    return 0


def told(suite: Path, *words: object) -> str:
    """The one line that is said of a mistake."""
    words = ("eval", suite, *words, "--device", "cpu", *(() if "--jobs" in words else ("--jobs", 1)))
    result = CliRunner().invoke(cli, list(map(str, words)))
    assert isinstance(result.exception, UserError), result.output
    return str(result.exception)


def test_two_do_not_write_to_one_run(suite: Path, candidates: Path, tmp_path: Path) -> None:
    with Archive(tmp_path / "run.sqlite", create=True):
        said = told(suite, "--candidates", candidates, "--run", tmp_path / "run.sqlite")
    assert "somebody else is writing" in said


def test_a_run_with_other_settings_is_another_run(suite: Path, candidates: Path, tmp_path: Path) -> None:
    run = tmp_path / "run.sqlite"
    with Archive(run, create=True) as archive:
        archive.set_fact("label", "somebody else")
    assert "another label (somebody else)" in told(suite, "--candidates", candidates, "--run", run)


@pytest.mark.parametrize(
    "words, why",
    [
        ((), "where do candidates come from"),
        (("--candidates", "c", "--jobs", "2"), "needs its device alone"),
        (("--candidates", "c", "--turns", "2"), "--turns is about a model"),
        (("--candidates", "c", "--prompts", "p"), "--prompts is about a model"),
        (("--candidates", "c", "--small", "nan"), "--small is a number"),
        (("--from", "run.sqlite", "--run", "run.sqlite"), "is the run the candidates come from"),
        (("--replay", "strange.jsonl"), "has no candidate for any problem of the suite"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "strange.jsonl").write_text(line(problem="level1_Exp"))
    with Archive(tmp_path / "run.sqlite", create=True) as archive:
        for problem in read_suite(suite).listed:
            archive.add_problem(problem)
        archive.add(Planned("level1_exp", 0, 0, "a", ".py", "text"))
    assert why in told(suite, *words)


def test_names_of_files_say_their_problem(suite: Path, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    numbered = suite / "level1" / "7_log.py"
    numbered.write_text(PROBLEM.format(operator="log"))
    (folder / "level1").mkdir(parents=True)
    (folder / "level1_exp").mkdir()
    for name in (
        "level1_sqrt.py",
        "level1/exp.py",
        "level1_exp/x.cu",
        "level_1_problem_7_sample_3_kernel.py",
    ):
        (folder / name).write_text(name)
    (folder / "nobody.py").write_text("")
    source = FolderSource(folder, read_suite(suite))
    assert [path.name for path in source.unmatched] == ["nobody.py"]
    assert source.samples("level1_exp") == [0, 1] and source.samples("level1_sqrt") == [0]
    assert source.samples("level1_7_log") == [3] and source.samples("level1_none") == []
    last = source.propose("level1_7_log", 3, [])
    assert last is not None and last.source == "level_1_problem_7_sample_3_kernel.py"


def test_a_folder_without_candidates_says_how_they_are_called(suite: Path, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match=r"such as level1_exp\.py, level1_sqrt\.py"):
        FolderSource(tmp_path / "none", read_suite(suite))
    with pytest.raises(UserError, match="no such folder"):
        FolderSource(tmp_path / "nowhere", read_suite(suite))


def line(**fields: object) -> str:
    return json.dumps({"problem": "p", "source": "text", **fields})


def test_other_separators_of_lines_are_text(tmp_path: Path) -> None:
    path = tmp_path / "replay.jsonl"
    path.write_text(json.dumps({"problem": "p", "source": "a\u2028b\x85c"}, ensure_ascii=False))
    planned = ReplaySource(path).propose("p", 0, [])
    assert planned is not None and planned.source == "a\u2028b\x85c"


def test_a_candidate_that_has_changed_is_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "replay.jsonl"
    path.write_text(line(source="now"))
    before = Judged(Planned("p", 0, 0, "p_0_0", ".py", "then", id=4), "", "w", 1.0, "wrong", {})
    with pytest.raises(UserError, match="has changed since the run began"):
        ReplaySource(path).propose("p", 0, [before])


def test_turns_of_a_replay_follow_each_other(tmp_path: Path) -> None:
    path = tmp_path / "replay.jsonl"
    path.write_text("\n".join([line(turn=2, source="late"), line(turn=0, cost_usd=0.5), line(sample=1)]))
    source = ReplaySource(path)
    assert source.samples("p") == [0, 1]
    first = source.propose("p", 0, [])
    assert first == Planned("p", 0, 0, "p_0_0", ".py", "text", None, 0.5)
    done = Judged(Planned("p", 0, 0, "p_0_0", ".py", "text", id=4), "", "w", 1.0, "wrong", {})
    second = source.propose("p", 0, [done])
    assert second is not None and (second.turn, second.source, second.parent) == (2, "late", 4)
    assert source.propose("p", 1, [done]) is None


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "holds no candidates"),
        (line()[:-4], "was the file cut short"),
        ('{"problem": "p"}', 'at least "problem" and "source"'),
        (line(sample="one"), "'sample' is not as it should be"),
        (line(extra=1), "'extra' is not as it should be"),
        (line(cost_usd=-1), "number of dollars"),
        (line(cost_usd=float("inf")), "number of dollars"),
        (line(cost_usd=float("nan")), "number of dollars"),
        (line(sample=-1), "'sample' is not as it should be"),
        (line(turn=1 << 70), "'turn' is not as it should be"),
        (line(source="\ud800"), "'source' is not as it should be"),
        ("[" * 200_000, "is no JSON"),
        (f"\n\n{line()}\n\nno", ":5: is no JSON"),
        (f"{line()}\n{line()}", "two candidates for sample 0, turn 0 of p"),
    ],
)
def test_a_replay_that_cannot_be_read_says_where(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "replay.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match=why):
        ReplaySource(path)


def test_an_earlier_run_is_a_source_too(tmp_path: Path, suite: Path) -> None:
    run = tmp_path / "run.sqlite"
    with Archive(run, create=True) as archive:
        archive.set_fact("label", "before")
        for problem in read_suite(suite).listed:
            archive.add_problem(problem)
        archive.add(Planned("level1_exp", 0, 0, "a", ".py", "text"))
    source = RunSource(run)
    assert source.label == "before" and source.samples("level1_exp") == [0]


def test_a_crew_that_is_closed_as_it_begins_waits_for_no_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is busy importing torch for seconds before it could learn that there is nothing to do."""
    made: list[WorkerProcess] = []

    class Late(WorkerProcess):
        def __init__(self, *about: object) -> None:
            super().__init__(*about)
            made.append(self)
            while not closed._threads_here._shutdown:
                time.sleep(0.01)

    monkeypatch.setattr(crew, "WorkerProcess", Late)
    closed = Crew(["cpu"], {"speed": False})
    closed.close()
    assert [one._process.returncode for one in made] == [-signal.SIGTERM]
