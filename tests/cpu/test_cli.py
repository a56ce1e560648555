"""The command line as a person or a script meets it: exit codes, one record, one-line errors, closed pipes.

A daemon judges what is asked here, but for one candidate: a process that judges by itself imports
torch first.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from daemon_process import (
    PATIENCE_S,
    TINY,
    Running,
    end,
    environment,
    launch,
    when_ready,
    write_files,
)

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "layernorm"
CHATTY = "def forward(x):\n    print('a last word')\n    raise ValueError('boom')\n"
Refused = Callable[..., tuple[object, str, str]]


@pytest.fixture(scope="module")
def daemon(folder: Path) -> Iterator[Running]:
    running = when_ready(launch(folder))
    yield running
    end(running)


def assay(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command line, out of reach of any daemon but one below `cwd`."""
    command = [sys.executable, "-m", "assay.cli", *map(str, arguments)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(cwd),
        timeout=PATIENCE_S,
        check=False,
    )


def check(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Gate 1 alone: test_cli_speed.py has the other one."""
    return assay("check", *arguments, "--device", "cpu", "--no-speed", cwd=cwd)


@pytest.fixture(scope="module")
def passed(daemon: Running, folder: Path) -> tuple[str, Path]:
    """What was said of a candidate that is right, and its record."""
    run = check(EXAMPLE / "problem.py", EXAMPLE / "kernel.cpp", "--keep", cwd=folder)
    assert run.returncode == 0, run.stderr
    return run.stdout, folder / run.stdout.strip().splitlines()[-1].removeprefix("record: ")


@dataclass(frozen=True)
class Here:
    """A wrong candidate judged by the process of the command, and how many verdicts the daemon gave then."""

    run: subprocess.CompletedProcess[str]
    asked_of_the_daemon: int


@pytest.fixture(scope="module")
def here(daemon: Running, folder: Path) -> Here:
    before = daemon.status().verdicts
    run = check("tiny.py", "wrong.py", "--json", "--no-daemon", cwd=folder)
    return Here(run, daemon.status().verdicts - before)


def test_passed_exits_0_and_ends_with_the_record(passed: tuple[str, Path]) -> None:
    text, record = passed
    assert text.startswith("PASSED")
    assert json.loads(record.read_text())["status"] == "passed"
    assert (record.with_suffix("") / "candidate.cpp").read_text() == (EXAMPLE / "kernel.cpp").read_text()


def test_without_speed_it_says_so(passed: tuple[str, Path]) -> None:
    text, path = passed
    assert "NOT TIMED  not asked for" in text
    assert "the speed of" not in text
    record = json.loads(path.read_text())
    assert (record["speed"], record["speed_absent"]) == (None, "not asked for")
    assert record["policy"]["speed"] is False


def test_wrong_exits_1_and_shows_mismatches(daemon: Running, folder: Path) -> None:
    run = check(EXAMPLE / "problem.py", EXAMPLE / "wrong.py", cwd=folder)
    assert run.returncode == 1
    assert run.stdout.startswith("WRONG")
    assert "expected" in run.stdout
    assert "got" in run.stdout


def test_json_is_one_object_alone(here: Here) -> None:
    assert here.run.returncode == 1, here.run.stderr
    record = json.loads(here.run.stdout)
    assert {"status", "findings", "cases", "sandbox", "environment", "schema"} <= set(record)
    assert record["status"] == "wrong"
    assert "margin" not in record


def test_a_daemon_says_the_same_as_this_process(daemon: Running, folder: Path, here: Here) -> None:
    before = daemon.status().verdicts
    asked = check("tiny.py", "wrong.py", "--json", cwd=folder)
    assert daemon.status().verdicts == before + 1
    assert here.asked_of_the_daemon == 0
    records = [json.loads(run.stdout) for run in (asked, here.run)]
    assert [record["status"] for record in records] == ["wrong", "wrong"]
    assert asked.returncode == here.run.returncode == 1
    assert records[0]["policy"] == records[1]["policy"]


def test_what_a_crashing_candidate_printed_is_shown(daemon: Running, folder: Path) -> None:
    (folder / "chatty.py").write_text(CHATTY)
    run = check("tiny.py", "chatty.py", cwd=folder)
    assert run.returncode == 1
    assert "a last word" in run.stdout
    assert run.stdout.count("boom") <= 3


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_closed_pipe_ends_quietly_with_the_verdicts_code(
    daemon: Running, folder: Path, form: tuple[str, ...]
) -> None:
    command = [sys.executable, "-m", "assay.cli", "check", "tiny.py", "wrong.py", "--no-speed", *form]
    command += ["--device", "cpu"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=folder, env=environment(folder), text=True, **pipes)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == ""
    assert process.wait(PATIENCE_S) == 1


def test_a_closed_pipe_ends_help_quietly(tmp_path: Path) -> None:
    command = f"{sys.executable} -m assay.cli --help | true"
    run = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.stderr == ""


@pytest.mark.parametrize(
    ("problem", "candidate", "words"),
    [
        ("nowhere.py", EXAMPLE / "kernel.py", "nowhere.py"),
        (EXAMPLE / "problem.py", "nowhere.py", "nowhere.py"),
        (EXAMPLE / "kernel.py", EXAMPLE / "kernel.py", "Model"),
        (EXAMPLE / "problem.py", EXAMPLE / "problem.py", "ModelNew"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    refused: Refused,
    tmp_path: Path,
    problem: object,
    candidate: object,
    words: str,
) -> None:
    order = ("check", problem, candidate, "--device", "cpu", "--no-speed")
    code, output, complaint = refused(*order, folder=tmp_path)
    assert (code, output) == (2, "")
    assert words in complaint
    assert len(complaint.strip().splitlines()) == 1


def test_no_such_device(refused: Refused, tmp_path: Path) -> None:
    order = ("check", EXAMPLE / "problem.py", EXAMPLE / "kernel.py", "--device", "tpu")
    code, output, complaint = refused(*order, folder=tmp_path)
    assert (code, output) == (2, "")
    assert len(complaint.strip().splitlines()) == 1
    assert "cpu, cuda or cuda:N" in complaint


def test_usage_errors_exit_2(tmp_path: Path) -> None:
    assert assay("check", cwd=tmp_path).returncode == 2
    assert assay("nonsense", cwd=tmp_path).returncode == 2
    assert assay("--version", cwd=tmp_path).returncode == 0


def test_doctor_gives_a_fix_for_what_is_missing(tmp_path: Path) -> None:
    run = assay("doctor", "--json", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    items = json.loads(run.stdout)["items"]
    names = {item["name"] for item in items}
    assert {"torch", "gpu", "c++", "nvcc", "ncu", "sandbox landlock", "sandbox seccomp"} <= names
    assert all(item["fix"] for item in items if not item["works"])


def test_a_problem_that_exits_gives_no_verdict(refused: Refused, tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "leaves.py").write_text(f"{TINY}\nraise SystemExit(0)\n")
    order = ("check", "leaves.py", "wrong.py", "--device", "cpu", "--no-speed")
    code, output, complaint = refused(*order, folder=tmp_path)
    assert (code, output) == (2, "")
    assert "sys.exit" in complaint
    assert len(complaint.strip().splitlines()) == 1


def test_records_that_cannot_be_written_are_told_before_judging(refused: Refused, tmp_path: Path) -> None:
    order = ("check", EXAMPLE / "problem.py", EXAMPLE / "wrong.py", "--device", "cpu", "--no-speed")
    code, output, complaint = refused(*order, "--records", "/proc/nowhere", folder=tmp_path)
    assert (code, output) == (2, "")
    assert len(complaint.strip().splitlines()) == 1
    assert "/proc/nowhere" in complaint


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_timeouts_are_positive(refused: Refused, tmp_path: Path, seconds: str) -> None:
    order = ("check", EXAMPLE / "problem.py", EXAMPLE / "wrong.py", "--device", "cpu", "--timeout", seconds)
    code, _, complaint = refused(*order, folder=tmp_path)
    assert code == 2
    assert "--timeout" in complaint and "Traceback" not in complaint
