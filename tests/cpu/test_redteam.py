"""Anybody's folder of attacks and honest kernels, walked to the end and told truly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from assay.records import RedteamRow, UserError
from assay.redteam.corpus import read_entry, read_folder
from assay.redteam.shares import walk_shared
from assay.redteam.walk import Judges, walk

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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "decay.py").write_text(PROBLEM)
    return tmp_path


def add(folder: Path, name: str, header: str, answer: str) -> Path:
    path = folder / name
    path.write_text(header + BODY.format(answer=answer))
    return path


def rows_of(folder: Path) -> dict[str, RedteamRow]:
    with Judges("cpu") as judges:
        return {row.name: row for row in walk(read_folder(folder), judges, lambda _row: None)}


def test_every_entry_has_its_row(folder: Path) -> None:
    add(folder, "f4_scaled.py", "# catalogue: F4\n# problem: decay\n# expect: wrong\n", WRONG)
    add(folder, "f4_strawman.py", "# catalogue: F4\n# problem: decay\n# expect: wrong\n", RIGHT)
    add(folder, "honest.py", "# problem: decay\n", RIGHT)
    add(folder, "harmed.py", "# problem: decay\n", WRONG)
    add(folder, "unnamed.py", "# catalogue: F4\n# problem: decay\n# expect: wrong\n# finding: magic\n", WRONG)
    add(folder, "elsewhere.py", "# problem: decay\n# devices: cuda\n", RIGHT)
    add(
        folder,
        "bomb.py",
        "# catalogue: E1\n# problem: decay\n# expect: crashed\n",
        "__import__('os').abort()",
    )
    rows = rows_of(folder)
    assert [name for name, row in rows.items() if not row.ok] == ["f4_strawman.py", "harmed.py", "unnamed.py"]
    assert rows["f4_strawman.py"].fooled and not rows["unnamed.py"].fooled
    assert rows["elsewhere.py"].status == "not run"
    assert rows["bomb.py"].status == "crashed"
    assert "honest" in rows["harmed.py"].why


def test_shared_among_processes_the_rows_are_the_same_and_in_order(folder: Path) -> None:
    (folder / "problems" / "decay_too.py").write_text(PROBLEM)
    add(folder, "a.py", "# problem: decay\n", RIGHT)
    add(folder, "b.py", "# problem: decay_too\n", RIGHT)
    add(folder, "c.py", "# catalogue: F4\n# problem: decay\n# expect: wrong\n", WRONG)
    add(folder, "d.py", "# catalogue: F4\n# problem: decay_too\n# expect: wrong\n", RIGHT)
    told: list[RedteamRow] = []
    rows = walk_shared(read_folder(folder), "cpu", 2, told.append)
    assert [(row.name, row.ok) for row in rows] == [
        ("a.py", True),
        ("b.py", True),
        ("c.py", True),
        ("d.py", False),
    ]
    assert sorted(row.name for row in told) == ["a.py", "b.py", "c.py", "d.py"]


def test_a_problem_the_judge_refuses_is_a_row_too(folder: Path) -> None:
    (folder / "problems" / "constant.py").write_text(PROBLEM.replace("torch.exp(-x.abs())", "x * 0.0"))
    add(folder, "a.py", "# problem: constant\n", "x * 0.0")
    add(folder, "b.py", "# problem: decay\n", RIGHT)
    rows = rows_of(folder)
    assert rows["a.py"].status == "no verdict" and not rows["a.py"].ok
    assert rows["b.py"].ok


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


def test_the_command_prints_the_matrix_and_exits_1_where_something_is_off(folder: Path) -> None:
    add(folder, "f4_scaled.py", "# catalogue: F4\n# problem: decay\n# expect: wrong\n", WRONG)
    add(folder, "harmed.py", "# problem: decay\n", WRONG)
    command = [sys.executable, "-m", "assay.cli", "redteam", str(folder), "--device", "cpu", "--json"]
    run = subprocess.run([*command, "--records", str(folder / "records")], capture_output=True, text=True)
    assert run.returncode == 1, run.stderr
    rows = json.loads(run.stdout)["rows"]
    assert {row["name"]: row["ok"] for row in rows} == {"f4_scaled.py": True, "harmed.py": False}
