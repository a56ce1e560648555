"""The table: its rows are problems that the judge takes, and its lines say what was found."""

from __future__ import annotations

import copy
import inspect
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.problems import load_problem
from assay.tiles import table_attention
from assay.tiles.catalog import KERNELS
from assay.tiles.choice import always
from assay.tiles.kernels import attention_backward
from assay.tiles.table import had, keep, kernel_lines, measured
from assay.tiles.table_row import needs
from assay.tiles.table_rows import Missing, Row, rows
from assay.tiles.table_small import small_rows

sys.path.insert(0, str(Path(__file__).parents[1] / "cpu"))
from daemon_process import Running, end, launch, when_ready

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
    assert len(set(labels)) == len(labels)
    absent = 4 + 6 * (find_spec("fla") is None) + 2 * (find_spec("mamba_ssm") is None)
    assert sum(isinstance(row, Missing) for row in rows()) == absent
    for number, row in enumerate(rows()):
        if isinstance(row, Row):
            problem, candidate = row.texts(8, 16)
            path = tmp_path / f"p{number}.py"
            path.write_text(problem)
            load_problem(path)
            compile(candidate, row.label, "exec")
            assert row.cost().size_bytes > 0 and row.cost().flops >= 0


def test_every_kernel_has_a_small_row() -> None:
    found = list(small_rows())
    assert {row.kernel for row in found} == KERNELS.keys()
    assert len({row.label for row in found}) == len(found)


CUT_DOWN = [SMALL, *small_rows()]


def answers(row: Row) -> tuple[list[torch.Tensor], ...]:
    """Of the problem in float64, of the problem, and of the candidate, to one input."""
    problem, candidate = row.texts(8, 16)
    with always("tiles"):  # which is what the candidate says, and would go on saying to the tests after this
        reference, new = _run(problem, row.label), _run(candidate, row.label)
    torch.manual_seed(0)
    inputs = reference["get_inputs"]()
    model, module = reference["Model"](), new["ModelNew"]()
    module.load_state_dict(model.state_dict())
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    with torch.no_grad():
        found = copy.deepcopy(model).double()(*wide), model(*inputs), module(*inputs)
    return tuple([each] if isinstance(each, torch.Tensor) else list(each) for each in found)


def _run(text: str, label: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "row"}
    exec(compile(text, label, "exec"), names)
    return names


def agree(row: Row) -> bool:
    """To a unit of bf16 or two, and whole numbers to the last; both in one type and shape."""
    exact, native, got = answers(row)
    alike = [(x.shape, x.dtype) for x in native] == [(x.shape, x.dtype) for x in got]
    return alike and all(_near(e, n) and _near(e, g) for e, n, g in zip(exact, native, got, strict=True))


def _near(exact: torch.Tensor, got: torch.Tensor) -> bool:
    if not got.is_floating_point():
        return torch.equal(exact, got)
    return bool((exact - got).norm() <= 0.01 * exact.norm())


@pytest.mark.parametrize("row", CUT_DOWN, ids=lambda row: row.label)
def test_problem_and_candidate_agree(row: Row) -> None:
    assert agree(row)


@pytest.mark.parametrize("row", CUT_DOWN, ids=lambda row: row.label)
def test_a_candidate_that_is_off_does_not_agree(row: Row) -> None:
    off = "(lambda y: y * 1.05 if isinstance(y, torch.Tensor) else (y[0] * 1.05, *y[1:]))"
    assert not agree(replace(row, call=f"{off}({row.call})"))


@pytest.mark.parametrize("row", CUT_DOWN, ids=lambda row: row.label)
def test_costs_are_of_the_tensors_that_rows_have(row: Row) -> None:
    names = _run(row.texts(8, 16)[0], row.label)
    inputs, model = names["get_inputs"](), names["Model"]()
    made = answers(row)[1]
    whole = sum(x.numel() * x.element_size() for x in (*inputs, *model.state_dict().values(), *made))
    assert 0.5 * whole < row.cost().size_bytes <= whole + 64
    assert row.cost().flops > 0 or row.kernel == "dispatch"


@pytest.mark.parametrize("is_causal", [False, True])
def test_gradients_from_what_a_forward_pass_kept(is_causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As autograd has them; the candidate's call gets its tensors in order."""
    torch.manual_seed(0)
    q, k, v, do = (torch.randn(2, 3, 40, 16, dtype=torch.float64) for _ in range(4))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    scores = q @ k.mT / 4
    scores = scores.masked_fill(torch.ones(40, 40).triu(1).bool(), -math.inf) if is_causal else scores
    o, logarithms = scores.softmax(-1) @ v, scores.logsumexp(-1).detach()
    exact = list(torch.autograd.grad(o, leaves, do))
    row = table_attention.backward(40, 16, is_causal, batch=2, heads=3)
    problem = _run(row.texts(8, 16)[0], row.label)
    module, given = problem["Model"](), (q, k, v, do, o.detach(), logarithms)
    torch.testing.assert_close(list(module(*given)), exact)
    assert [x.shape for x in problem["get_inputs"]()] == [x.shape for x in given]

    signature = inspect.signature(attention_backward.attention_backward.function)

    def as_a_kernel(*arguments: Any) -> Any:
        a = signature.bind(*arguments).arguments
        assert a["is_causal"] is is_causal and a["scale"] == 0.25
        return module(a["q"], a["k"], a["v"], a["do"], a["o"], a["sums"])

    monkeypatch.setattr(attention_backward, "attention_backward", as_a_kernel)
    with always("tiles"):
        made = _run(row.texts(8, 16)[1], row.label)["ModelNew"]()(*given)
    torch.testing.assert_close(list(made), exact)


def test_costs_of_gradients_alone() -> None:
    """Eight tensors of 2 x 3 x 40 x 16 numbers, and five products of 2 x 3 x 40 x 40 x 16 multiplications."""
    cost = table_attention.backward(40, 16, False, batch=2, heads=3).cost()
    assert (cost.size_bytes, cost.flops) == (8 * 2 * 3 * 40 * 16 * 2, 5 * 2 * 2 * 3 * 40 * 40 * 16)


def test_every_kernel_of_the_table_is_cut_down() -> None:
    listed = {row.kernel for row in rows() if isinstance(row, Row)}
    plain = {"rms_norm", "layer_norm", "softmax", "cross_entropy", "swiglu"}
    assert listed - plain <= {row.kernel for row in CUT_DOWN}


def test_a_library_that_is_not_there_is_said() -> None:
    (row,) = needs("no_such_library", [SMALL])
    assert isinstance(row, Missing) and row.label == SMALL.label and "no_such_library" in row.why
    assert needs("torch", [SMALL]) == [SMALL]


@pytest.mark.parametrize(("kernel", "most"), [("gemm", 80), ("attention", 120)])
def test_kernels_are_short(kernel: str, most: int) -> None:
    assert 40 < kernel_lines(KERNELS[kernel].run.__module__) < most


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Kept warm, and found by whoever asks for a verdict."""
    running = launch(tmp_path_factory.mktemp("judge"))
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in when_ready(running).environment.items():
                patch.setenv(name, value)
            yield running
    finally:
        end(running)


@pytest.mark.usefixtures("judge")
def test_a_row_is_judged_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    told = measured(SMALL, ["--device", "cpu", "--no-speed"])
    assert told["status"] == "passed" and told["environment"]["device"] == "cpu"
    assert "gemm small" in capsys.readouterr().out


@pytest.mark.usefixtures("judge")
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
import assay.tiles.choice
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
        raise RuntimeError(f"{found}, {assay.tiles.choice.answer} answer")
"""


def test_candidates_may_import_tiles_and_nothing_else_of_the_package(judge: Running, tmp_path: Path) -> None:
    problem, candidate = tmp_path / "problem.py", tmp_path / "candidate.py"
    problem.write_text(SMALL.texts(8, 16)[0])
    candidate.write_text(SNOOPING)
    verdict = judge.check(problem, candidate)
    told = next(case for case in verdict.cases if case.outcome == "crashed")
    assert "['ModuleNotFoundError', 'PermissionError', 'PermissionError'], tiles answer" in told.message


def test_a_table_is_measured_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    for told in ({"label": "a", "lines": 1}, {"label": "b", "lines": 2}, {"label": "a", "lines": 3}):
        keep(told, path)
    assert json.loads(path.read_text()) == [{"label": "a", "lines": 3}, {"label": "b", "lines": 2}]


def test_rows_that_the_file_has_are_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    assert had(path, []) == set()
    absent = {"eager": "", "compile": "it crashed", "max-autotune": "not asked for: name it"}
    speed = {"rungs": [{"name": name, "absent": why} for name, why in absent.items()]}
    for label, status, timed in (("a", "passed", speed), ("b", "passed", None), ("c", "wrong", None)):
        keep({"label": label, "status": status, "speed": timed}, path)
    assert had(path, []) == {"a"}
    assert had(path, ["--deep", "--no-speed"]) == {"a", "b"}
    assert had(path, ["--rungs", "compile, eager", "--deep"]) == {"a"}
    assert had(path, ["--rungs=eager,max-autotune"]) == set()


@pytest.mark.usefixtures("judge")
def test_a_rejected_kernel_is_printed_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    told = measured(replace(SMALL, call="(gemm(a, b), a.mul_(2))[0]"), ["--device", "cpu", "--no-speed"])
    assert told["status"] == "rejected" and "input" in told["why"][0]
    assert told["why"][0] in capsys.readouterr().out


def test_what_is_missing_is_missing_in_a_file() -> None:
    command = [sys.executable, "-m", "assay.tiles.table", "--missing"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "--missing wants the file" in done.stderr
