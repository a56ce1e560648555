"""Inductor in a process of its own: for a GPU that is only described, and what is told when it ends early."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from described_gpu import H200

from assay import lift
from assay.lift.capture import _last_words
from assay.problems import Case, load_problem

PROBLEM = """import asyncio

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(197))

    def forward(self, x, y, a, b, c, d):
        return {formula}


def get_inputs():
    return 3 * [torch.randn(8, 1197, 197), torch.randn(8, 197, 2197)]


def get_init_inputs():
    return []
"""


def problem_of(folder: Path, formula: str) -> Any:
    path = folder / "problem.py"
    path.write_text(PROBLEM.format(formula=formula))
    return load_problem(path)


def test_what_this_torch_generates_for_a_gpu_is_read_without_one(tmp_path: Path) -> None:
    spread, odd_sizes = "torch.var(torch.exp(x), dim=-1) + y.sum()", "torch.relu(a @ b)"
    weighted = "torch.relu(c * self.weight) + d.sum()"
    problem = problem_of(tmp_path, f"{spread}, {odd_sizes}, {weighted}")
    with closing(lift.Capturer(problem, Case("nominal"), "cuda", H200)) as capturer:
        lifted = lift.read(capturer.capture("base", 300.0))
    text = lift.write(lifted, problem)
    compile(text, problem.name, "exec")
    assert len(lifted.kernels) >= 3, "one for each answer, and the steps of a sum"
    assert "@triton.jit" in text and "inductor" not in text and "misaligned" not in text
    assert lift.available(lifted)


def test_a_process_that_ends_says_why(tmp_path: Path) -> None:
    """Its last words come after it has hung up."""
    problem = problem_of(tmp_path, "(_ for _ in ()).throw(asyncio.CancelledError('called off'))")
    told = r"ended with 1: asyncio\.exceptions\.CancelledError: called off"
    with (
        closing(lift.Capturer(problem, Case("nominal"), "cpu")) as capturer,
        pytest.raises(lift.CannotLift, match=told),
    ):
        capturer.capture("base", 300.0)


ABORTED = """terminate called after throwing an instance of 'c10::Error'
  what():  no such device
frame #31: _start + 0x30 (0xaaaad68708b0 in python)
"""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (ABORTED, "what():  no such device"),
        ("it begins\nand ends\n", "and ends"),
        ("", "it said nothing"),
    ],
)
def test_the_last_words_are_the_last_error_if_there_is_one(said: str, told: str) -> None:
    assert _last_words(said) == told
