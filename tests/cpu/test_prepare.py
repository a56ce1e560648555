"""A problem made ready: hidden cases beside the declared ones, and the reasons why none would tell."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from assay.judge import Policy
from assay.judge.prepare import FULL_SIZE, Prepared, is_full_size, prepare
from assay.problems import load_problem

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")
PROBLEM = """
import torch

rows = 24
cols = 40


class Model(torch.nn.Module):
    def forward(self, x, y):
        return {formula}


def get_inputs():
    return [torch.randn(rows, cols), torch.randn(rows, cols)]
"""


def prepared(folder: Path, formula: str, policy: Policy | None = None) -> Prepared:
    path = folder / "problem.py"
    path.write_text(PROBLEM.format(formula=formula))
    return prepare(load_problem(path), policy or Policy(), CPU)


def test_hidden_cases_differ_in_size_layout_and_contents(tmp_path: Path) -> None:
    found = prepared(tmp_path, "torch.sigmoid(x) + y")
    cases = [case.instance.case for case in found.cases]
    hidden = [case for case in cases if case.hidden]
    assert found.cases[0].nominal and not cases[0].hidden
    assert Counter(case.nominal for case in found.cases)[True] == 1
    assert len({case.distribution for case in hidden}) >= 3
    assert len({case.layout for case in hidden}) >= 3
    assert len({tuple(sorted(case.sizes.items())) for case in hidden}) >= 3
    assert all(case.derived for case in hidden)
    assert found.record.flaws == ()


def test_the_scored_size_gets_other_contents_and_another_layout(tmp_path: Path) -> None:
    found = prepared(tmp_path, "torch.sigmoid(x) + y")
    full = [case.instance.case for case in found.cases if case.instance.case.name.startswith(FULL_SIZE)]
    nominal = found.cases[0].instance.case
    assert all(case.sizes == nominal.sizes for case in full)
    assert sum(is_full_size(case) for case in full) == 1
    assert any(case.layout != "given" for case in full)


def test_no_hidden_cases_where_none_are_wanted(tmp_path: Path) -> None:
    found = prepared(tmp_path, "torch.sigmoid(x) + y", Policy(derive_hidden=False))
    assert len(found.cases) == 1


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("torch.full_like(x, 3.0)", "wrong answers pass on every case"),
        ("x * 2 + 0 * y", "the output ignores input y"),
        ("x * 2 + torch.rand_like(y)", "does not agree with itself"),
        ("(x + y, torch.zeros_like(y))", "output 1 cannot be told from a wrong one"),
    ],
)
def test_what_no_case_can_tell_is_a_flaw(tmp_path: Path, formula: str, words: str) -> None:
    assert any(words in flaw for flaw in prepared(tmp_path, formula).record.flaws)


def test_a_precision_that_no_case_can_tell_is_noted(tmp_path: Path) -> None:
    """Signs survive rounding to bfloat16."""
    alone = Policy(derive_hidden=False)
    found = prepared(tmp_path, "torch.sign(x) + torch.sign(y)", alone)
    assert [note.code for note in found.notes] == ["downgraded_unseen"]
    assert prepared(tmp_path, "torch.sigmoid(x) + y", alone).notes == ()


def test_a_policy_may_forbid_what_the_problem_allows(tmp_path: Path) -> None:
    alone = Policy(derive_hidden=False)
    assert prepared(tmp_path, "torch.sigmoid(x) + y", alone).record.rules.library_calls
    strict = Policy(derive_hidden=False, forbid_libraries=True)
    assert not prepared(tmp_path, "torch.sigmoid(x) + y", strict).record.rules.library_calls


@pytest.mark.parametrize(
    "formula, taken", [("torch.sigmoid(x) + y", True), ("self.w.numpy()[0] * x + y", False)]
)
def test_gradients_are_left_out_where_the_specification_does_not_take_them(
    tmp_path: Path, formula: str, taken: bool
) -> None:
    """numpy() of what requires a gradient is refused, as are some arguments of torch's own losses."""
    path = tmp_path / "problem.py"
    weights = "    def __init__(self):\n        super().__init__()\n        self.w = {}\n\n"
    weights = weights.format("torch.nn.Parameter(torch.rand(3))")
    text = PROBLEM.format(formula=formula).replace("    def forward", f"{weights}    def forward")
    path.write_text(text)
    found = prepare(load_problem(path), Policy(), CPU)
    assert {case.gradients for case in found.cases} == {taken}
