"""Triton's kernels on a CPU: bfloat16 is computed with, not its bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.candidates import candidate_from_source
from assay.judge import Judge, Policy
from assay.problems import load_problem
from assay.worker.interpreted import rounded, widened

pytest.importorskip("triton")
PROBLEM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        whole = y.int().to(x.dtype) + x.sum(1, keepdim=True)
        return torch.where(x > y, torch.relu(x * y), 0.5 - x) @ y + whole


def get_inputs():
    return [torch.randn(32, 32, dtype=torch.bfloat16), torch.randn(32, 32, dtype=torch.bfloat16)]
"""
CANDIDATE = """
import torch
import triton
import triton.language as tl


@triton.jit
def positive(x):
    return tl.maximum(x, 0.0).to(tl.bfloat16)


@triton.jit
def one_block(x_ptr, y_ptr, out_ptr):
    line = tl.arange(0, 32)
    place = line[:, None] * 32 + line[None, :]
    x, y = tl.load(x_ptr + place), tl.load(y_ptr + place)
    product = positive(positive(x * y))
    made = tl.where(x {comparison} y, product, 0.5 - x)
    whole = y.to(tl.int32).to(tl.bfloat16) + tl.sum(x, 1)[:, None]
    tl.store(out_ptr + place, (tl.dot(made, y) + whole).to(tl.bfloat16))


def forward(x, y):
    out = torch.empty(32, 32, dtype=x.dtype, device=x.device)
    for _ in range(2):
        one_block[(1,)](x.contiguous(), y.contiguous(), out)
    return out
"""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge("cpu", Policy(speed=False), tmp_path_factory.mktemp("cache")) as one:
        yield one


@pytest.mark.parametrize(("comparison", "status"), [(">", "passed"), ("<", "wrong")])
def test_arithmetic_of_bfloat16_through_the_interpreter(
    judge: Judge, comparison: str, status: str, tmp_path: Path
) -> None:
    candidate = candidate_from_source(CANDIDATE.format(comparison=comparison), "candidate", ".py")
    problem = tmp_path / "problem.py"
    problem.write_text(PROBLEM)
    verdict = judge.evaluate(load_problem(problem), candidate)
    assert verdict.status == status, verdict


def test_bits_are_those_of_torch() -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16)
    narrow = every.view(torch.bfloat16)
    wide = widened(every.numpy().view(np.uint16))
    assert np.array_equal(wide, narrow.float().numpy(), equal_nan=True)
    drawn = torch.randint(-(2**31), 2**31 - 1, (200_000,), dtype=torch.int64).to(torch.int32)
    values = torch.cat([drawn.view(torch.float32), torch.tensor([1.00390625, 3.4e38, -0.0, 1e-40])])
    values = values[~values.isnan()]
    wanted = values.bfloat16().view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(rounded(values.numpy()), wanted)
    assert np.isnan(widened(rounded(np.array([np.nan], np.float32)))).all()


WRAPPING = """
import torch
import triton
import triton.language as tl


@triton.jit
def wrapped(x_ptr, out_ptr):
    place = tl.arange(0, 32)
    x = tl.load(x_ptr + place)
    tl.store(out_ptr + place, (x + 2147483647) * 3 - x)


def forward(x):
    out = torch.empty_like(x)
    wrapped[(1,)](x.contiguous(), out)
    return out
"""
WRAPPED = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return (x + 2147483647) * 3 - x


def get_inputs():
    return [torch.randint(0, 100, (32,), dtype=torch.int32)]
"""


def test_integers_that_leave_their_bits_come_round_as_on_a_gpu(judge: Judge, tmp_path: Path) -> None:
    problem = tmp_path / "problem.py"
    problem.write_text(WRAPPED)
    verdict = judge.evaluate(load_problem(problem), candidate_from_source(WRAPPING, "candidate", ".py"))
    assert verdict.status == "passed", verdict
