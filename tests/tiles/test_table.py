"""The table: its rows are problems that the judge takes, and its lines say what was found."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.candidates import read_candidate
from assay.judge import Policy, evaluate
from assay.problems import load_problem
from assay.tiles.catalog import KERNELS
from assay.tiles.table import kernel_lines, measured
from assay.tiles.table_rows import Missing, Row, rows

SMALL = Row(
    label="gemm small",
    kernel="gemm",
    sizes={"m": 48, "n": 32, "k": 64},
    reference="torch",
    names="a, b",
    body="return a @ b",
    inputs="torch.randn(48, 64, dtype=torch.bfloat16), torch.randn(64, 32, dtype=torch.bfloat16)",
    call="gemm(a, b)",
)


def test_every_row_is_a_problem(tmp_path: Path) -> None:
    labels = [row.label for row in rows()]
    assert len(set(labels)) == len(labels) and sum(isinstance(row, Missing) for row in rows()) == 4
    for number, row in enumerate(rows()):
        if isinstance(row, Row):
            problem, candidate = row.texts(8, 16)
            path = tmp_path / f"p{number}.py"
            path.write_text(problem)
            load_problem(path)
            compile(candidate, row.label, "exec")
            assert KERNELS[row.kernel].cost(**row.sizes).flops > 0


@pytest.mark.parametrize(("kernel", "most"), [("gemm", 80), ("attention", 120)])
def test_kernels_are_short(kernel: str, most: int) -> None:
    assert 40 < kernel_lines(kernel) < most


def test_a_row_is_judged_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    told = measured(SMALL, ["--device", "cpu", "--no-speed"])
    assert told["status"] == "passed" and told["environment"]["device"] == "cpu"
    assert "gemm small" in capsys.readouterr().out


def test_a_wrong_kernel_is_printed_as_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = Row(**{name: getattr(SMALL, name) for name in SMALL.__slots__} | {"call": "gemm(a, b) * 1.1"})
    assert measured(wrong, ["--device", "cpu", "--no-speed"])["status"] == "wrong"
    assert "wrong" in capsys.readouterr().out


def test_what_cannot_be_judged_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert measured(SMALL, ["--device", "nowhere"])["status"] == "failed"
    assert "no verdict" in capsys.readouterr().out


SNOOPING = """
import os

import assay
import assay.tiles
from torch import nn

found = []
for look in (
    lambda: __import__("assay.judge"),
    lambda: os.listdir(os.path.dirname(assay.__file__)),
    lambda: open(os.path.join(os.path.dirname(assay.__file__), "judge", "judge.py")).read(),
):
    try:
        found.append(look())
    except (ImportError, OSError) as error:
        found.append(type(error).__name__)


class ModelNew(nn.Module):
    def forward(self, a, b):
        raise RuntimeError(str(found))
"""


def test_candidates_may_import_tiles_and_nothing_else_of_the_package(tmp_path: Path) -> None:
    problem, candidate = tmp_path / "problem.py", tmp_path / "candidate.py"
    problem.write_text(SMALL.texts(8, 16)[0])
    candidate.write_text(SNOOPING)
    verdict = evaluate(load_problem(problem), read_candidate(candidate), Policy(speed=False), "cpu")
    told = next(case for case in verdict.cases if case.outcome == "crashed")
    assert "['ModuleNotFoundError', 'PermissionError', 'PermissionError']" in told.message
