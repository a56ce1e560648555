"""What a candidate ran, and whether its own kernels mattered, through one judge."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from assay.candidates import candidate_from_source
from assay.judge import Judge, Policy
from assay.problems import load_problem
from assay.records import Census, UserError, Verdict

PROBLEM = """
import torch

rows, cols = 48, 96

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0 + 1.0

def get_inputs():
    return [torch.randn(rows, cols)]

def get_init_inputs():
    return []
"""
TORCH = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0 + 1.0
"""
OWN = """// assay: out y = torch.empty(x.shape, dtype=x.dtype)
// assay: call relu(x, y, x.numel())
// assay: return y
extern "C" void relu(const float* x, float* y, long long n) {
  for (long long i = 0; i < n; ++i) y[i] = (x[i] > 0 || x[i] != x[i] ? x[i] : 0.0f) * 2.0f + 1.0f;
}
"""
DECOY = """// assay: out scratch = torch.empty(x.shape, dtype=x.dtype)
// assay: call relu(x, scratch, x.numel())
// assay: return torch.relu(x) * 2.0 + 1.0
extern "C" void relu(const float* x, float* y, long long n) {
  for (long long i = 0; i < n; ++i) y[i] = x[i];
}
"""
TRITON = """
import torch
import triton
import triton.language as tl

@triton.jit
def relu(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, tl.where(value < 0, 0.0, value) * 2.0 + 1.0, mask=at < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            relu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""
NEVER_LAUNCHED = TRITON.partition("class ModelNew")[0] + TORCH.partition("import torch\n")[2]


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("census") / "scaled_relu.py"
    path.write_text(PROBLEM)
    return path


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge("cpu", Policy(speed=False)) as judge:
        yield judge


@pytest.fixture(scope="module")
def strict(judge: Judge) -> Judge:
    """Another policy, and its own problems, with the processes of the judge."""
    other = copy.copy(judge)
    other.policy, other._prepared = replace(judge.policy, forbid_libraries=True), {}
    other._shop = replace(judge._shop, policy=other.policy)
    return other


def verdict_of(judge: Judge, problem: Path, source: str, suffix: str) -> Verdict:
    return judge.evaluate(load_problem(problem), candidate_from_source(source, "candidate", suffix))


def census_of(verdict: Verdict) -> Census:
    assert verdict.census is not None, verdict
    assert not verdict.census.absent, verdict.census
    return verdict.census


def codes(verdict: Verdict) -> dict[str, bool]:
    return {finding.code: finding.fatal for finding in verdict.findings}


def test_torch_is_library_code_and_allowed(judge: Judge, problem: Path) -> None:
    verdict = verdict_of(judge, problem, TORCH, ".py")
    census = census_of(verdict)
    assert verdict.status == "passed"
    assert {"aten::relu", "aten::mul.Tensor"} <= {s.name for s in census.shares if s.kind == "library"}
    assert census.own_share is not None and census.own_share < 1
    assert "library_calls" not in codes(verdict)


def test_own_code_passes_where_libraries_are_forbidden(strict: Judge, problem: Path) -> None:
    verdict = verdict_of(strict, problem, OWN, ".cpp")
    census = census_of(verdict)
    assert verdict.status == "passed", verdict.findings
    assert not verdict.problem.rules.library_calls
    assert {share.kind for share in census.shares} <= {"housekeeping"}
    assert census.replay == "wrong"


def test_an_empty_case_does_not_show_that_a_kernel_does_not_matter(judge: Judge, problem: Path) -> None:
    verdict = verdict_of(judge, problem, OWN, ".cpp")
    assert any(0 in case.sizes.values() for case in verdict.cases)
    assert "kernel_does_not_matter" not in codes(verdict)


def test_torch_is_rejected_where_libraries_are_forbidden(strict: Judge, problem: Path) -> None:
    verdict = verdict_of(strict, problem, TORCH, ".py")
    assert verdict.status == "rejected"
    assert codes(verdict)["library_calls"]


def test_a_kernel_that_does_not_matter_is_noted(judge: Judge, problem: Path) -> None:
    verdict = verdict_of(judge, problem, DECOY, ".cpp")
    assert verdict.status == "passed"
    assert census_of(verdict).replay == "right"
    assert codes(verdict)["kernel_does_not_matter"] is False


def test_a_kernel_that_does_not_matter_is_fatal_where_libraries_are_forbidden(
    strict: Judge, problem: Path
) -> None:
    verdict = verdict_of(strict, problem, DECOY, ".cpp")
    assert verdict.status == "rejected"
    assert codes(verdict)["kernel_does_not_matter"] and codes(verdict)["library_calls"]


def test_triton_launches_are_left_out_too(judge: Judge, problem: Path) -> None:
    verdict = verdict_of(judge, problem, TRITON, ".py")
    assert verdict.status == "passed", verdict.findings
    assert census_of(verdict).replay == "wrong"


def test_a_kernel_that_is_never_launched_is_noted(judge: Judge, problem: Path) -> None:
    verdict = verdict_of(judge, problem, NEVER_LAUNCHED, ".py")
    assert census_of(verdict).replay == "never launched"
    assert codes(verdict)["kernel_does_not_matter"] is False


def test_kernels_for_the_scored_size_alone_are_looked_at_there(
    judge: Judge, strict: Judge, problem: Path
) -> None:
    chosen = TRITON.replace(
        "if x.numel():",
        "if x.shape != (48, 96):\n            return torch.relu(x) * 2.0 + 1.0\n        if True:",
    )
    verdict = verdict_of(judge, problem, chosen, ".py")
    assert census_of(verdict).replay == "wrong" and "kernel_does_not_matter" not in codes(verdict)
    decoy = chosen.replace("        return y\n", "        return torch.relu(x) * 2.0 + 1.0\n")
    assert codes(verdict_of(judge, problem, decoy, ".py"))["kernel_does_not_matter"] is False
    # Where libraries are forbidden, they are so at every size.
    assert codes(verdict_of(strict, problem, chosen, ".py"))["kernel_does_not_matter"] is True


def test_a_wrong_candidate_is_not_counted(judge: Judge, problem: Path) -> None:
    verdict = verdict_of(judge, problem, TORCH.replace("+ 1.0", "+ 1.1"), ".py")
    assert verdict.status == "wrong"
    assert verdict.census is None


def test_rules_are_read_from_the_problem_and_shown(judge: Judge, tmp_path: Path) -> None:
    path = tmp_path / "ruled.py"
    path.write_text(PROBLEM + '\nRULES = {"library_calls": False, "calls_per_weights": 10}\n')
    verdict = verdict_of(judge, path, TORCH, ".py")
    assert verdict.status == "rejected"
    assert verdict.problem.rules.calls_per_weights == 10


@pytest.mark.parametrize(
    "rules", ['{"libraries": False}', "[1]", '{"library_calls": 1}', '{"calls_per_weights": -1}']
)
def test_rules_that_make_no_sense_are_refused(tmp_path: Path, rules: str) -> None:
    path = tmp_path / "ruled.py"
    path.write_text(PROBLEM + f"\nRULES = {rules}\n")
    with pytest.raises(UserError, match="RULES"):
        load_problem(path)
