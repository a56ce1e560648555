"""The deep level with the real tool: right answers whose kernels are wrong, and honest ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from assay.build import find_toolchain
from assay.candidates import candidate_from_source
from assay.judge import Judge, Policy
from assay.problems import Problem, load_problem
from assay.records import Finding, Verdict
from assay.worker.inspection import TOOLS

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]
# 1000 elements: the last block of every kernel below is not full.
PROBLEM = """
import torch

rows = 20
cols = 50


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0


def get_inputs():
    return [torch.randn(rows, cols)]
"""
TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def shifted_relu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets {comparison} n, other=0.0)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0) + 1.0, mask=offsets < n)


def forward(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    shifted_relu[(triton.cdiv(n, 128),)](x, y, n, BLOCK=128)
    return y
"""
BY_MAP = """
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def stored_relu(x_ptr, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    y.store([tl.program_id(0) * BLOCK], tl.maximum(x, 0.0))


@triton.jit
def shifted(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(y_ptr + offsets, x + 1.0, mask=offsets < n)


def forward(x):
    x = x.contiguous()
    made, y = torch.empty_like(x), torch.empty_like(x)
    n = x.numel()
    grid = (triton.cdiv(n, 128),)
    stored_relu[grid](x, TensorDescriptor(made, [n], [1], [128]), n, BLOCK=128)
    shifted[grid](made, y, n, BLOCK=128)
    return y
"""
# Whatever is read where nothing should be read is compared with a number that no memory holds by chance, so
# that the answer stays right and the read stays in the program.
CUDA = """
// assay: let n = x.numel()
// assay: let scratch = torch.empty_like(x)
// assay: out y = torch.empty_like(x)
// assay: launch staged_relu<<<cdiv(n, 64), 64>>>(x, scratch, y, n)
// assay: return y

extern "C" __global__ void staged_relu(const float* x, const float* scratch, float* y, long long n) {{
    __shared__ float stage[64];
    long long i = (long long)blockIdx.x * 64 + threadIdx.x;
    float value = i < n ? x[i] : 0.0f;
    stage[threadIdx.x] = value;
    {barrier}
    float neighbour = stage[threadIdx.x ^ 32];
    if (neighbour == 1.2345678e-30f) value += 1.0f;
    {extra}
    if (i < n) y[i] = fmaxf(value, 0.0f) + 1.0f;
}}
"""
BARRIER = "__syncthreads();"
LEFTOVER = "if (i < n && scratch[i] == 1.2345678e-30f) value += 1.0f;"
# The other warp's one barrier answers the first of these, its end the second: nothing hangs.
DIVERGENT = "if (threadIdx.x < 32) __syncthreads(); __syncthreads();"


@pytest.fixture(scope="module")
def judge(device: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    if find_toolchain(None).sanitizer is None:
        pytest.skip("no compute-sanitizer here")
    with Judge(device, Policy(deep=True, speed=False), tmp_path_factory.mktemp("cache")) as one:
        yield one


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    path = tmp_path_factory.mktemp("problem") / "shifted_relu.py"
    path.write_text(PROBLEM)
    return load_problem(path)


def judged(judge: Judge, problem: Problem, source: str, suffix: str) -> Verdict:
    verdict = judge.evaluate(problem, candidate_from_source(source, "candidate", suffix))
    assert all(case.outcome in ("passed", "refused") for case in verdict.cases), verdict.cases
    assert verdict.seconds["deep"] > 0
    return verdict


def said(verdict: Verdict) -> list[Finding]:
    return [finding for finding in verdict.findings if finding.code in (*TOOLS, "not_inspected")]


def test_reading_one_element_too_far_in_triton(judge: Judge, problem: Problem) -> None:
    verdict = judged(judge, problem, TRITON.format(comparison="<="), ".py")
    fatal = {finding.code: finding for finding in said(verdict) if finding.fatal}
    assert verdict.status == "rejected" and "memcheck" in fatal, said(verdict)
    message = fatal["memcheck"].message
    assert "Invalid __global__ read" in message and "shifted_relu" in message


@pytest.mark.parametrize(
    ("code", "barrier", "extra"),
    [
        ("racecheck", "", ""),
        ("initcheck", BARRIER, LEFTOVER),
        ("synccheck", BARRIER, DIVERGENT),
    ],
)
def test_each_tool_finds_what_it_is_for(
    judge: Judge, problem: Problem, code: str, barrier: str, extra: str
) -> None:
    verdict = judged(judge, problem, CUDA.format(barrier=barrier, extra=extra), ".cu")
    fatal = {finding.code: finding for finding in said(verdict) if finding.fatal}
    assert verdict.status == "rejected" and code in fatal, said(verdict)
    assert "staged_relu" in fatal[code].message and "candidate.cu:" in fatal[code].message


@pytest.mark.parametrize(
    ("source", "suffix"),
    [
        pytest.param(TRITON.format(comparison="<"), ".py", id="triton"),
        pytest.param(CUDA.format(barrier=BARRIER, extra=""), ".cu", id="cuda"),
        pytest.param("import torch\ndef forward(x):\n    return torch.relu(x) + 1.0\n", ".py", id="library"),
    ],
)
def test_honest_kernels_pass_and_every_tool_has_looked(
    judge: Judge, problem: Problem, source: str, suffix: str
) -> None:
    verdict = judged(judge, problem, source, suffix)
    assert verdict.status == "passed" and said(verdict) == [], said(verdict)


def test_stores_by_tensor_maps_are_no_reason_to_reject(judge: Judge, problem: Problem) -> None:
    """initcheck may call what a second kernel reads of them never written."""
    verdict = judged(judge, problem, BY_MAP, ".py")
    assert verdict.status == "passed" and not any(finding.fatal for finding in said(verdict)), said(verdict)
