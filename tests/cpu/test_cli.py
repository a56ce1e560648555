"""The command line as a person or a script meets it: exit codes, one record, one-line errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "layernorm"


def assay(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command line, out of reach of a daemon that a developer may have running."""
    command = [sys.executable, "-m", "assay.cli", *map(str, arguments)]
    where = {**os.environ, "XDG_RUNTIME_DIR": str(cwd)}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=where, timeout=120, check=False
    )


def check(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Gate 1 alone: test_cli_speed.py has the other one."""
    return assay("check", *arguments, "--device", "cpu", "--no-speed", cwd=cwd)


def test_passed_exits_0_and_ends_with_the_record(tmp_path: Path) -> None:
    run = check(EXAMPLE / "problem.py", EXAMPLE / "kernel.cpp", "--keep", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("PASSED")
    record = tmp_path / run.stdout.strip().splitlines()[-1].removeprefix("record: ")
    assert json.loads(record.read_text())["status"] == "passed"
    assert (record.with_suffix("") / "candidate.cpp").read_text() == (EXAMPLE / "kernel.cpp").read_text()


def test_wrong_exits_1_and_shows_mismatches(tmp_path: Path) -> None:
    run = check(EXAMPLE / "problem.py", EXAMPLE / "wrong.py", cwd=tmp_path)
    assert run.returncode == 1
    assert run.stdout.startswith("WRONG")
    assert "expected" in run.stdout
    assert "got" in run.stdout


def test_json_is_one_object_alone(tmp_path: Path) -> None:
    run = check(EXAMPLE / "problem.py", EXAMPLE / "wrong.py", "--json", cwd=tmp_path)
    assert run.returncode == 1
    record = json.loads(run.stdout)
    assert {"status", "findings", "cases", "sandbox", "environment", "schema"} <= set(record)
    assert record["status"] == "wrong"
    assert "margin" not in record


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
    refused: Callable[..., tuple[object, str, str]],
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


def test_no_such_device(tmp_path: Path) -> None:
    run = assay("check", EXAMPLE / "problem.py", EXAMPLE / "kernel.py", "--device", "tpu", cwd=tmp_path)
    assert run.returncode == 2
    assert run.stdout == ""
    assert len(run.stderr.strip().splitlines()) == 1
    assert "cpu, cuda or cuda:N" in run.stderr


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


def test_a_problem_that_exits_gives_no_verdict(tmp_path: Path) -> None:
    problem = tmp_path / "leaves.py"
    problem.write_text((EXAMPLE / "problem.py").read_text() + "\nraise SystemExit(0)\n")
    run = check(problem, EXAMPLE / "wrong.py", cwd=tmp_path)
    assert run.returncode == 2
    assert run.stdout == ""
    assert "sys.exit" in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1


def test_records_that_cannot_be_written_are_told_before_judging(tmp_path: Path) -> None:
    run = check(EXAMPLE / "problem.py", EXAMPLE / "wrong.py", "--records", "/proc/nowhere", cwd=tmp_path)
    assert run.returncode == 2
    assert len(run.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_timeouts_are_positive(tmp_path: Path, seconds: str) -> None:
    run = check(EXAMPLE / "problem.py", EXAMPLE / "wrong.py", "--timeout", seconds, cwd=tmp_path)
    assert run.returncode == 2
    assert "Traceback" not in run.stderr


def test_what_a_crashing_candidate_printed_is_shown(tmp_path: Path) -> None:
    candidate = tmp_path / "chatty.py"
    candidate.write_text("def forward(x, **state):\n    print('a last word')\n    raise ValueError('boom')\n")
    run = check(EXAMPLE / "problem.py", candidate, cwd=tmp_path)
    assert run.returncode == 1
    assert "a last word" in run.stdout
    assert run.stdout.count("boom") <= 3
