"""Anybody's folder of attacks and honest kernels, walked to the end and told truly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from assay.cli.redteam import redteam
from assay.records import RedteamMatrix, RedteamRow, UserError, from_plain
from assay.redteam.corpus import read_entry, read_folder

PROBLEM = """
import torch

rows, cols = 32, 40

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.exp(-x.abs())

def get_inputs():
    return [torch.randn(rows, cols)]

def get_init_inputs():
    return []
"""
BODY = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return {answer}
"""
RIGHT, WRONG = "torch.exp(-x.abs())", "torch.exp(-x.abs()) * 1.01"


CONSTANT = "x * 0.0"
ATTACK = "# catalogue: F4\n# problem: {problem}\n# expect: wrong\n"
ON_DECAY = ATTACK.format(problem="decay")


def make_folder(folder: Path) -> Path:
    (folder / "problems").mkdir()
    (folder / "problems" / "decay.py").write_text(PROBLEM)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path)


def add(folder: Path, name: str, header: str, answer: str) -> Path:
    path = folder / name
    path.write_text(header + BODY.format(answer=answer))
    return path


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The command over one corpus, in this process; the problem that is refused comes first."""
    folder = make_folder(tmp_path_factory.mktemp("corpus"))
    (folder / "problems" / "constant.py").write_text(PROBLEM.replace("torch.exp(-x.abs())", CONSTANT))
    add(folder, "a_constant.py", "# problem: constant\n", CONSTANT)
    add(folder, "f4_scaled.py", ON_DECAY, WRONG)
    add(folder, "f4_strawman.py", ON_DECAY, RIGHT)
    add(folder, "honest.py", "# problem: decay\n", RIGHT)
    add(folder, "harmed.py", "# problem: decay\n", WRONG)
    add(folder, "unnamed.py", f"{ON_DECAY}# finding: magic\n", WRONG)
    add(folder, "elsewhere.py", "# problem: decay\n# devices: cuda\n", RIGHT)
    bomb = "# catalogue: E1\n# problem: decay\n# expect: crashed\n"
    add(folder, "bomb.py", bomb, "__import__('os').abort()")
    options = ("--device", "cpu", "--jobs", "1", "--json", "--records", str(folder / "records"))
    return CliRunner().invoke(redteam, [str(folder), *options])


@pytest.fixture(scope="module")
def rows(told: Result) -> dict[str, RedteamRow]:
    return {row.name: row for row in from_plain(RedteamMatrix, json.loads(told.stdout)).rows}


def test_every_entry_has_its_row(rows: dict[str, RedteamRow]) -> None:
    off = [name for name, row in rows.items() if not row.ok]
    assert off == ["a_constant.py", "f4_strawman.py", "harmed.py", "unnamed.py"]
    assert rows["f4_scaled.py"].ok and rows["honest.py"].ok
    assert rows["f4_strawman.py"].fooled and not rows["unnamed.py"].fooled
    assert rows["elsewhere.py"].status == "not run"
    assert rows["bomb.py"].status == "crashed"
    assert "honest" in rows["harmed.py"].why


def test_a_problem_the_judge_refuses_is_a_row_too(rows: dict[str, RedteamRow]) -> None:
    assert next(iter(rows)) == "a_constant.py", "others are judged after it"
    assert rows["a_constant.py"].status == "no verdict" and not rows["a_constant.py"].ok


def test_the_command_exits_1_where_something_is_off(told: Result) -> None:
    assert told.exit_code == 1, told.stderr
    assert told.stderr == "", "one JSON object alone"


def test_shared_among_processes_the_rows_are_the_same_and_in_order(folder: Path) -> None:
    (folder / "problems" / "decay_too.py").write_text(PROBLEM)
    add(folder, "a.py", "# problem: decay\n", RIGHT)
    add(folder, "b.py", "# problem: decay_too\n", RIGHT)
    add(folder, "c.py", ON_DECAY, WRONG)
    add(folder, "d.py", ATTACK.format(problem="decay_too"), RIGHT)
    command = [sys.executable, "-m", "assay.cli", "redteam", str(folder), "--device", "cpu", "--jobs", "2"]
    run = subprocess.run([*command, "--records", str(folder / "records")], capture_output=True, text=True)
    assert run.returncode == 1, run.stderr
    (record,) = (folder / "records").iterdir()
    matrix = from_plain(RedteamMatrix, json.loads(record.read_text()))
    assert [(row.name, row.ok) for row in matrix.rows] == [
        ("a.py", True),
        ("b.py", True),
        ("c.py", True),
        ("d.py", False),
    ]
    as_they_came = [line.split() for line in run.stderr.splitlines()]
    marks = {name: "✗" if name == "d.py" else "✓" for name in ("a.py", "b.py", "c.py", "d.py")}
    assert {next(w for w in words if w in marks): words[0] for words in as_they_came} == marks
    assert len(as_they_came) == 4
    assert run.stdout.startswith("attacks ")
    assert "2 of 2 honest kernels unharmed" in run.stdout and "✗ d.py" in run.stdout


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("# expect: wrong\n", "names no problem"),
        ("# problem: nowhere\n", "no nowhere.py"),
        ("# problem: decay\n# expect: fast\n", "no status 'fast'"),
        ("# problem: decay\n# twin: missing\n", "no missing.py"),
    ],
)
def test_a_header_that_makes_no_sense_is_named(folder: Path, header: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        read_entry(add(folder, "x.py", header, RIGHT))


def test_a_folder_without_headers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\n")
    with pytest.raises(UserError, match="header"):
        read_folder(tmp_path)
