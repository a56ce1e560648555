"""Inductor in a process of its own: for a GPU that is only described, and what is told when it ends early."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from described_gpu import H200

from assay import lift
from assay.problems import Case, load_problem

PROBLEM = """import asyncio
import os

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(197))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return {formula}


def get_inputs():
    return [torch.randn(8, 1197, 197), torch.randn(8, 197, 2197)]


def get_init_inputs():
    return []
"""


def problem_of(folder: Path, formula: str) -> Any:
    path = folder / "problem.py"
    path.write_text(PROBLEM.format(formula=formula))
    return load_problem(path)


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("spread", "torch.var(torch.exp(x), dim=-1) + y.sum()"),
        ("odd_sizes", "torch.relu(x @ y)"),
        ("weighted", "torch.relu(x * self.weight) + y.sum()"),
    ],
)
def test_what_this_torch_generates_for_a_gpu_is_read_without_one(
    tmp_path: Path, name: str, formula: str
) -> None:
    problem = problem_of(tmp_path, formula)
    with closing(lift.Capturer(problem, Case("nominal"), "cuda", H200)) as capturer:
        lifted = lift.read(capturer.capture("base", 300.0))
    text = lift.write(lifted, problem)
    compile(text, name, "exec")
    assert "@triton.jit" in text and "inductor" not in text and "misaligned" not in text
    assert lift.available(lifted)


ABORTED = """terminate called after throwing an instance of 'c10::Error'
  what():  no such device
frame #31: _start + 0x30 (0xaaaad68708b0 in python)
"""


@pytest.mark.parametrize(
    ("formula", "told"),
    [
        # Its last words come after it has hung up.
        (
            "(_ for _ in ()).throw(asyncio.CancelledError('called off'))",
            r"ended with 1: asyncio\.exceptions\.CancelledError: called off",
        ),
        (f"os.write(2, {ABORTED.encode()!r}) and os._exit(3)", r"ended with 3: what\(\):  no such device"),
        ("os._exit(4)", "ended with 4: it said nothing"),
    ],
)
def test_a_process_that_ends_says_why(tmp_path: Path, formula: str, told: str) -> None:
    problem = problem_of(tmp_path, formula)
    with (
        closing(lift.Capturer(problem, Case("nominal"), "cpu")) as capturer,
        pytest.raises(lift.CannotLift, match=told),
    ):
        capturer.capture("base", 300.0)
