"""Large cases compared in parts: only where rows do not know of each other, and with the same outcome."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assay.correctness import Reference, calibrate, check_outputs, parts, tensors_of
from assay.correctness.parts import Split, find_split
from assay.problems import Case, Precision, load_problem

CPU = torch.device("cpu")
ROWS = 48
SEEDS = (1, 2, 3)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "WHOLE_BYTES", 1 << 10)
    monkeypatch.setattr(parts, "GLANCE_BYTES", 1 << 13)
    monkeypatch.setattr(parts, "PART_BYTES", 1 << 12)


def instance_of(tmp_path: Path, forward: str, inputs: str = "torch.randn(ROWS, 64)", init: str = "pass"):
    path = tmp_path / "problem.py"
    path.write_text(f"""
import torch

ROWS = {ROWS}

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x, *rest):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
""")
    return load_problem(path).bind(Case("nominal"))


def split_of(instance) -> Split | None:
    reference = Reference(instance, Precision(), CPU, 0)
    inputs = instance.make_inputs(5, CPU)
    return find_split(reference, inputs, tensors_of(reference.native(inputs)))


def test_rows_of_a_softmax_fall_apart(tmp_path: Path) -> None:
    split = split_of(instance_of(tmp_path, "return torch.softmax(x, -1)"))
    assert split is not None
    assert split.cut == (0,)
    covered = [row for part in split.parts() for row in range(part.start, part.stop)]
    assert covered == list(range(ROWS))
    assert len(list(split.parts())) > 1
    covered = [row for glance in split.glances() for part in split.parts(glance) for row in range(ROWS)[part]]
    assert covered == list(range(ROWS))
    assert 1 < len(split.glances()) < len(list(split.parts()))


def test_a_share_of_the_glances_is_drawn_anew(tmp_path: Path) -> None:
    split = split_of(instance_of(tmp_path, "return torch.softmax(x, -1)"))
    assert split is not None
    split = replace(split, rows_per_glance=1)
    draws = [split.glances(0.25) for _ in range(20)]
    assert all(len(draw) == -(-ROWS // 4) and draw == sorted(draw) for draw in draws)
    assert len({tuple(glance.start for glance in draw) for draw in draws}) > 1


@pytest.mark.parametrize(
    ("forward", "init"),
    [
        ("return torch.cumsum(x, 0)", "pass"),
        ("return x - x.mean(0)", "pass"),
        ("return self.norm(x)", "self.norm = torch.nn.BatchNorm1d(64)"),
        ("return x + torch.arange(x.shape[0], dtype=x.dtype)[:, None]", "pass"),
        ("return x.view(ROWS // 2, 2, 64).sum(1).repeat(2, 1)", "pass"),
        ("return x.flip(0)", "pass"),
        ("return x * x.shape[0]", "pass"),
    ],
)
def test_rows_that_know_of_each_other_stay_together(tmp_path: Path, forward: str, init: str) -> None:
    assert split_of(instance_of(tmp_path, forward, init=init)) is None


def test_only_the_input_with_a_row_per_output_row_is_cut(tmp_path: Path) -> None:
    split = split_of(
        instance_of(tmp_path, "return x @ rest[0]", "torch.randn(ROWS, ROWS), torch.randn(ROWS, ROWS)")
    )
    assert split is not None
    assert split.cut == (0,)


def test_small_cases_are_judged_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "WHOLE_BYTES", 1 << 30)
    assert split_of(instance_of(tmp_path, "return torch.softmax(x, -1)")) is None


def test_the_outcome_is_that_of_the_whole(tmp_path: Path) -> None:
    instance = instance_of(tmp_path, "return torch.softmax(x, -1)")
    calibration = calibrate(instance, Precision(), CPU, SEEDS)
    assert calibration.split is not None
    assert calibration.discriminates
    assert calibration.shapes == ((ROWS, 64),)
    reference = Reference(instance, Precision(), CPU, 0)
    inputs = instance.make_inputs(7, CPU)
    right = tensors_of(reference.native(inputs))

    def check(got: list[torch.Tensor], split: Split | None):
        return check_outputs(reference, instance, inputs, Precision(), 11, got, split)

    for split in (None, calibration.split):
        assert check(right, split).ok
    for row in (0, ROWS // 2, ROWS - 1):
        wrong = [right[0].clone()]
        wrong[0][row, 3] *= 1.5
        for split in (None, calibration.split):
            report = check(wrong, split)
            assert not report.ok
            assert report.mismatches[0].index == (row, 3)
    lower = [right[0].half().float()]
    assert not check(lower, None).ok
    assert not check(lower, calibration.split).ok


@pytest.mark.parametrize(
    "forward, rest",
    [
        ("return x.index_add(0, rest[0], rest[1])", "torch.randint(0, ROWS, (30,)), torch.randn(30, 64)"),
        ("return x[rest[0].argsort()]", "torch.randint(0, 3, (ROWS,))"),
        ("return x * rest[1][rest[0]]", "torch.randint(0, ROWS, (ROWS,)), torch.randn(ROWS, 64)"),
    ],
)
def test_no_part_is_tried_whose_integers_would_point_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forward: str, rest: str
) -> None:
    """A CPU says so; on a GPU the process would end."""
    raised: list[Exception] = []
    wide = Reference.wide

    def watched(self: Reference, inputs: list) -> list[torch.Tensor]:
        nonlocal raised
        try:
            return wide(self, inputs)
        except (IndexError, RuntimeError) as error:
            raised += [error] if "out of" in str(error) else []
            raise

    monkeypatch.setattr(Reference, "wide", watched)
    split_of(instance_of(tmp_path, forward, f"torch.randn(ROWS, 64), {rest}"))
    assert not raised


def test_integers_that_are_no_places_of_rows_are_no_obstacle(tmp_path: Path) -> None:
    inputs = "torch.randn(ROWS, 64), torch.randint(0, 3, (ROWS,)), torch.randn(3, 64)"
    split = split_of(instance_of(tmp_path, "return x * rest[1][rest[0]]", inputs))
    assert split is not None and split.cut == (0, 1)
