"""Layouts that the specification itself does not survive where it is judged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.judge import Judge, Policy
from assay.judge.legality import without_faults
from assay.problems import load_problem

DENSE = {"given", "offset", "mixed"}
"""Of a single input."""
# Only a confined process has that user's name: what is not dense kills it there, or is refused.
PROBLEM = """
import os
import torch

rows, cols = 24, 40

class Model(torch.nn.Module):
    def forward(self, x):
        if os.environ.get("USER") == "candidate" and {condition}:
            {fault}
        return torch.relu(x) * 2.0

def get_inputs():
    return [torch.randn(rows, cols)]

def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge("cpu", Policy(speed=False), tmp_path_factory.mktemp("cache")) as one:
        yield one


@pytest.mark.parametrize("fault", ["os.abort()", "raise RuntimeError('not dense')"])
def test_cases_that_the_specification_faults_on_are_left_out(
    judge: Judge, tmp_path: Path, fault: str
) -> None:
    path = tmp_path / "problem.py"
    path.write_text(PROBLEM.format(condition="not x.is_contiguous()", fault=fault))
    problem = load_problem(path)
    prepared = judge.prepare(problem)
    kept = without_faults(judge._shop, problem, prepared)
    layouts = {case.instance.case.layout for case in prepared.cases}
    assert layouts - DENSE, "nothing was tried"
    assert [c for c in prepared.cases if c.instance.case.layout in DENSE] == list(kept.cases)


def test_nothing_is_left_out_of_what_it_survives(judge: Judge, tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(PROBLEM.format(condition="False", fault="pass"))
    problem = load_problem(path)
    prepared = judge.prepare(problem)
    assert without_faults(judge._shop, problem, prepared) == prepared
