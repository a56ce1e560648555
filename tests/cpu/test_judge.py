"""The judge end to end on the CPU: what a verdict says, and when there is none."""

from __future__ import annotations

import contextlib
import os
import re
import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from daemon_process import BARE, TINY

from assay.candidates import Candidate, candidate_from_source, read_candidate
from assay.judge import Judge, Policy
from assay.problems import load_problem
from assay.records import BuildFailed, FlawedProblem, Passed, UserError, Verdict, Wrong
from assay.sandbox import LAYERS
from assay.worker import Child, Pool

DATA = Path(__file__).parent / "data"
EXAMPLE = Path(__file__).parents[2] / "examples" / "layernorm"

LINEAR = """
import torch

rows = 64
cols = 48


class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.first = torch.nn.Linear(features, features)
        self.second = torch.nn.Linear(features, 7)

    def forward(self, x):
        return self.second(torch.sigmoid(self.first(x)))


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return [cols]
"""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge("cpu", Policy(call_timeout_s=20, speed=False), tmp_path_factory.mktemp("cache")) as one:
        yield one


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("problems") / "linear.py"
    path.write_text(LINEAR)
    return path


def from_text(body: str, suffix: str = ".py") -> Candidate:
    return candidate_from_source(body, "candidate", suffix)


def module(constructor: str, forward: str) -> Candidate:
    lines = ["import torch", "class ModelNew(torch.nn.Module):", "    def __init__(self, features):"]
    lines += ["        super().__init__()", *(f"        {line}" for line in constructor.splitlines())]
    lines += ["    def forward(self, x):", *(f"        {line}" for line in forward.splitlines())]
    return from_text("\n".join(lines) + "\n")


SAME_NAMES = "self.first = torch.nn.Linear(features, features)\nself.second = torch.nn.Linear(features, 7)"
FORWARD = "return self.second(torch.sigmoid(self.first(x)))"


def codes(verdict: Verdict) -> set[str]:
    return {finding.code for finding in verdict.findings}


def test_passed_verdict_tells_everything(judge: Judge, linear: Path) -> None:
    verdict = judge.evaluate(load_problem(linear), module(SAME_NAMES, FORWARD))
    assert isinstance(verdict, Passed)
    assert 0 < verdict.margin <= 1
    assert verdict.state == "by name"
    assert verdict.problem.oracle == "float64"
    assert verdict.problem.flaws == ()
    assert {layer.name for layer in verdict.sandbox} == set(LAYERS)
    hidden = [case for case in verdict.cases if case.hidden]
    assert len(hidden) >= 3
    assert {case.layout for case in hidden} - {"given"}
    assert {case.distribution for case in hidden} - {"nominal"}
    assert verdict.cases[0].calls == judge.policy.nominal_calls
    assert verdict.speed_measurable


def test_a_process_with_more_than_a_thousand_open_files_judges_as_well(judge: Judge, linear: Path) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 2000:
        pytest.skip("so many may not be open here: ulimit -n")
    judge.settle()
    with contextlib.ExitStack() as stack:
        for _ in range(1100):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        verdicts = [judge.evaluate(load_problem(linear), module(SAME_NAMES, FORWARD)) for _ in range(2)]
    assert [verdict.status for verdict in verdicts] == ["passed", "passed"]


def test_other_parameter_names_are_matched_by_seed(judge: Judge, linear: Path) -> None:
    names = "self.a = torch.nn.Linear(features, features)\nself.b = torch.nn.Linear(features, 7)"
    verdict = judge.evaluate(load_problem(linear), module(names, "return self.b(torch.sigmoid(self.a(x)))"))
    assert (verdict.status, verdict.state) == ("passed", "by seed")


def test_other_construction_order_is_matched_by_name(judge: Judge, linear: Path) -> None:
    names = "self.second = torch.nn.Linear(features, 7)\nself.first = torch.nn.Linear(features, features)"
    verdict = judge.evaluate(load_problem(linear), module(names, FORWARD))
    assert (verdict.status, verdict.state) == ("passed", "by name")


def test_functions_take_state_by_keyword(judge: Judge, linear: Path) -> None:
    source = """
import torch

def forward(x, first_weight, first_bias, second_weight, second_bias):
    hidden = torch.sigmoid(x @ first_weight.t() + first_bias)
    return hidden @ second_weight.t() + second_bias
"""
    verdict = judge.evaluate(load_problem(linear), from_text(source))
    assert verdict.status == "passed"


def test_wrong_values_are_shown_with_expected_and_got(judge: Judge, linear: Path) -> None:
    verdict = judge.evaluate(load_problem(linear), module(SAME_NAMES, FORWARD + " * 1.0001"))
    assert isinstance(verdict, Wrong)
    worst = verdict.cases[0]
    assert worst.outcome == "wrong"
    assert worst.wrong_elements > 0
    first = worst.mismatches[0]
    assert abs(first.got - first.expected) > first.tolerance
    assert first.got == pytest.approx(first.expected, rel=1e-3)


@pytest.mark.parametrize(
    ("forward", "complaint"),
    [
        ("return self.second(torch.sigmoid(self.first(x)))[:-1]", "specified is float32 [64, 7]"),
        ("return self.second(torch.sigmoid(self.first(x))).double()", "specified is float32"),
        ("y = self.second(torch.sigmoid(self.first(x)))\nreturn y, y", "2 outputs where 1"),
        ("return None", "0 outputs where 1"),
        ("return self.second(torch.sigmoid(self.first(x))).to_sparse()", "not a plain tensor"),
    ],
)
def test_form_is_part_of_the_answer(judge: Judge, linear: Path, forward: str, complaint: str) -> None:
    verdict = judge.evaluate(load_problem(linear), module(SAME_NAMES, forward))
    assert verdict.status == "wrong"
    assert complaint in verdict.cases[0].message


def test_refusing_a_derived_case_is_noted_not_punished(judge: Judge, linear: Path) -> None:
    guard = "if x.shape != (64, 48):\n    raise ValueError('only 64 x 48')\n"
    verdict = judge.evaluate(load_problem(linear), module(SAME_NAMES, guard + FORWARD))
    assert verdict.status == "passed"
    assert "refused_case" in codes(verdict)
    refused = [case for case in verdict.cases if case.outcome == "refused"]
    assert refused
    assert all(case.derived for case in refused)
    assert "only 64 x 48" in refused[0].message


SATURATED = """
import torch

rows = 64
cols = 48


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.clamp(x + 2, 1, 2)


def get_inputs():
    return [torch.rand(rows, cols)]
"""


@pytest.mark.parametrize(
    ("guard", "status", "code"),
    [
        ("x.shape == (64, 48) and x.min() >= 0", "rejected", "refused_contents"),
        ("x.min() >= 0", "rejected", "refused_contents"),
        ("x.shape == (64, 48)", "wrong", None),
        ("True", "wrong", None),
    ],
)
def test_refusing_what_could_tell_is_no_way_out(
    judge: Judge, tmp_path: Path, guard: str, status: str, code: str | None
) -> None:
    """The nominal contents saturate: only others tell clamp(x + 2, 1, 2) from a constant 2."""
    path = tmp_path / "saturated.py"
    path.write_text(SATURATED)
    body = f"    assert x.numel() == 0 or ({guard})\n    return torch.full_like(x, 2.0)\n"
    text = f"import torch\ndef forward(x):\n{body}"
    verdict = judge.evaluate(load_problem(path), from_text(text))
    assert verdict.status == status, (verdict.findings, verdict.cases)
    assert code is None or code in codes(verdict)


def test_full_size_gets_other_contents_too(judge: Judge, tmp_path: Path) -> None:
    path = tmp_path / "relu.py"
    path.write_text(SATURATED.replace("torch.clamp(x + 2, 1, 2)", "torch.relu(x)"))
    text = "import torch\ndef forward(x):\n    return x.clone() if x.shape == (64, 48) else torch.relu(x)\n"
    assert judge.evaluate(load_problem(path), from_text(text)).status == "wrong"


def test_parameters_that_start_as_constants_must_be_found(judge: Judge, tmp_path: Path) -> None:
    path = tmp_path / "norm.py"
    path.write_text(
        LINEAR.replace(
            "self.first = torch.nn.Linear(features, features)", "self.norm = torch.nn.LayerNorm(features)"
        )
        .replace("        self.second = torch.nn.Linear(features, 7)\n", "")
        .replace("self.second(torch.sigmoid(self.first(x)))", "self.norm(x)")
    )
    verdict = judge.evaluate(
        load_problem(path), module("pass", "return torch.nn.functional.layer_norm(x, x.shape[-1:])")
    )
    assert verdict.status == "rejected"
    assert "unmatched_state" in codes(verdict)


def test_complex_and_dict_outputs_are_judged(judge: Judge, tmp_path: Path) -> None:
    path = tmp_path / "spectrum.py"
    path.write_text(SATURATED.replace("torch.clamp(x + 2, 1, 2)", "{'f': torch.fft.fft(x), 'd': x * 2}"))
    spectrum = "torch.fft.fft(x.double()).to(torch.complex64)"
    right = f"import torch\ndef forward(x):\n    return {{'d': x + x, 'f': {spectrum}}}\n"
    assert judge.evaluate(load_problem(path), from_text(right)).status == "passed"
    wrong = right.replace("x + x", "x * 2.001")
    assert judge.evaluate(load_problem(path), from_text(wrong)).status == "wrong"


@pytest.mark.parametrize(
    ("forward", "status"),
    [("return x.t()", "passed"), ("return x.t().contiguous()", "passed"), ("return x.t() + 1", "wrong")],
)
def test_a_view_is_allowed_where_the_specification_returns_one(
    judge: Judge, tmp_path: Path, forward: str, status: str
) -> None:
    path = tmp_path / "view.py"
    path.write_text(
        "import torch\nrows = 64\ncols = 48\nclass Model(torch.nn.Module):\n"
        "    def forward(self, x):\n        return x.t()\n"
        "def get_inputs():\n    return [torch.randn(rows, cols)]\ndef get_init_inputs():\n    return []\n"
    )
    assert judge.evaluate(load_problem(path), from_text(f"def forward(x):\n    {forward}\n")).status == status


def test_raising_on_a_declared_case_is_a_crash(judge: Judge, linear: Path) -> None:
    verdict = judge.evaluate(load_problem(linear), module(SAME_NAMES, "raise ValueError('not today')"))
    assert verdict.status == "crashed"
    assert "not today" in verdict.death
    assert "line" in verdict.death


def test_build_failures_name_the_line(judge: Judge, linear: Path) -> None:
    verdict = judge.evaluate(load_problem(linear), from_text("class ModelNew(:\n    pass\n"))
    assert isinstance(verdict, BuildFailed)
    assert "line 1" in verdict.diagnosis
    assert verdict.cases == ()


def test_failed_and_good_builds_are_cached(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, compilers = judge._shop.pool, []

    def take_compiler() -> Child:
        compilers.append(Pool.take_compiler(pool))
        return compilers[-1]

    monkeypatch.setattr(pool, "take_compiler", take_compiler)
    path = tmp_path / "problem.py"
    path.write_text(TINY)
    problem = load_problem(path)
    broken = from_text(BARE.replace("long i = 0", "lng i = 0"), ".cpp")
    for candidate, status in ((from_text(BARE, ".cpp"), "passed"), (broken, "build_failed")):
        first, second = (judge.evaluate(problem, candidate) for _ in range(2))
        assert first.status == second.status == status
    assert len(compilers) == 2  # for four verdicts
    assert "lng" in second.diagnosis


def test_memory_that_is_freed_stays_with_the_process(judge: Judge, linear: Path) -> None:
    """Else calls of the same work take as long as the system takes to find some, or not."""
    forward = """import resource
def faults():
    for _ in range(40):
        h = large + large
        h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True)) * large[0]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
large = torch.randn(512, 1000)
before = faults()
raise RuntimeError(f"{(faults() - before) / 500:.0f} results in new pages")"""
    verdict = judge.evaluate(load_problem(linear), module(SAME_NAMES, forward))
    taken = re.search(r"(\d+) results in new pages", verdict.cases[0].message)
    assert taken and int(taken[1]) <= 8  # of 160; where malloc gives memory back, 20 to 80


def test_triton_runs_through_its_interpreter(judge: Judge, tmp_path: Path) -> None:
    small = tmp_path / "problem.py"
    small.write_text((EXAMPLE / "problem.py").read_text())
    _change(small, ("rows = 256", "rows = 8"), ("cols = 1000", "cols = 100"))
    _change(small, ('"rows": 128, "cols": 2048', '"rows": 4, "cols": 128'), ('"rows": 64', '"rows": 6'))
    _change(small, ('"rows": 37, "cols": 997', '"rows": 5, "cols": 97'))
    verdict = judge.evaluate(load_problem(small), read_candidate(EXAMPLE / "kernel.py"))
    assert verdict.status == "passed"
    assert not verdict.speed_measurable


def test_kernelbot_task_is_judged_by_its_own_check(judge: Judge) -> None:
    problem = load_problem(DATA / "kernelbot" / "rowsum")
    right = from_text(
        "from task import input_t, output_t\n"
        "def custom_kernel(data: input_t) -> output_t:\n"
        "    x, mask = data\n"
        "    return x.sum(1) if mask is None else (x * mask).sum(1)\n"
    )
    unmasked = from_text("def custom_kernel(data):\n    return data[0].sum(1)\n")
    assert judge.evaluate(problem, right).status == "passed"
    verdict = judge.evaluate(problem, unmasked)
    assert verdict.status == "wrong"


INTO_ITS_DATA = """import torch
from task import input_t, output_t


def generate_input(size: int, seed: int) -> input_t:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.rand(size, size, generator=generator) for _ in range(3))


def ref_kernel(data: input_t) -> output_t:
    a, b, output = data
    output[...] = a + {second}
    return output


def check_implementation(data, output):
    return torch.allclose(output, ref_kernel(data)), "off"
"""
SUBMISSION_INTO = "def custom_kernel(data):\n    a, b, c = data\n    c.copy_(a + b)\n    return {returned}\n"


@pytest.fixture
def into_its_data(tmp_path: Path) -> Path:
    listed = "\n".join(f'  - {{"name": "{n}", "source": "{n}"}}' for n in ("task.py", "reference.py"))
    sizes = 'tests:\n  - {"size": 33, "seed": 1}\nbenchmarks:\n  - {"size": 64, "seed": 2}\n'
    (tmp_path / "task.yml").write_text(f'files:\n{listed}\nlang: "py"\n{sizes}')
    (tmp_path / "task.py").write_text("input_t = output_t = object\n")
    (tmp_path / "reference.py").write_text(INTO_ITS_DATA.format(second="b"))
    return tmp_path


def test_where_a_task_writes_its_answer_nothing_need_be_read(judge: Judge, into_its_data: Path) -> None:
    problem = load_problem(into_its_data)
    for returned, status in (("c", "passed"), ("c.clone()", "passed"), ("c + 1", "wrong")):
        source = SUBMISSION_INTO.format(returned=returned)
        assert judge.evaluate(problem, from_text(source)).status == status


def test_what_a_task_only_reads_must_matter(judge: Judge, into_its_data: Path) -> None:
    (into_its_data / "reference.py").write_text(INTO_ITS_DATA.format(second="1"))
    with pytest.raises(FlawedProblem, match="ignores input 1"):
        judge.evaluate(load_problem(into_its_data), from_text(SUBMISSION_INTO.format(returned="c")))


def test_a_task_that_adds_to_its_data_is_judged_by_data_as_it_was(judge: Judge, into_its_data: Path) -> None:
    _change(into_its_data / "reference.py", ("output[...] = a + b", "output += a * b"))
    verdict = judge.evaluate(
        load_problem(into_its_data),
        from_text("def custom_kernel(data):\n    a, b, c = data\n    return c.add_(a * b)\n"),
    )
    assert verdict.status == "passed"
    assert "nondeterministic" not in {finding.code for finding in verdict.findings}


SHARED = "range(3))[:2] * 2", "a, b, output, _ = data"


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ((("range(3))", SHARED[0]), ("a, b, output = data", SHARED[1])), UserError, "shares memory"),
        ((("return output", "return None"),), FlawedProblem, "no case has an output with elements"),
    ],
)
def test_tasks_that_cannot_be_judged_say_why(
    judge: Judge, into_its_data: Path, changes: tuple[tuple[str, str], ...], error: type[Exception], text: str
) -> None:
    _change(into_its_data / "reference.py", *changes)
    with pytest.raises(error, match=text):
        judge.evaluate(load_problem(into_its_data), from_text(SUBMISSION_INTO.format(returned="c")))


def test_parts_of_data_may_have_gaps(judge: Judge, into_its_data: Path) -> None:
    gaps = ("(size, size, generator=generator)", "(size, 2 * size, generator=generator)[:, ::2]")
    _change(into_its_data / "reference.py", gaps)
    right = from_text(SUBMISSION_INTO.format(returned="c"))
    assert judge.evaluate(load_problem(into_its_data), right).status == "passed"


def _change(path: Path, *changes: tuple[str, str]) -> None:
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def test_kernelbot_reference_is_not_importable(judge: Judge) -> None:
    problem = load_problem(DATA / "kernelbot" / "rowsum")
    verdict = judge.evaluate(
        problem,
        from_text("from reference import ref_kernel as custom_kernel\ndef custom_kernel(d): return d\n"),
    )
    assert verdict.status == "build_failed"


def test_flawed_problems_are_refused_by_name(judge: Judge, tmp_path: Path) -> None:
    path = tmp_path / "constant.py"
    path.write_text((DATA / "kernelbench" / "level1" / "5_Constant.py").read_text())
    _change(path, ("batch_size = 1024", "batch_size = 32"), ("dim = 2048", "dim = 64"))
    with pytest.raises(FlawedProblem, match="constant cannot tell right from wrong"):
        judge.evaluate(load_problem(path), from_text("def forward(*a, **k): return a[0]\n"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def custom_kernel(data): return data\n", "wants ModelNew"),
        ("from triton.experimental import gluon\ndef forward(x): return x\n", "needs a GPU"),
    ],
)
def test_mistakes_of_the_person_are_told(judge: Judge, linear: Path, text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        judge.evaluate(load_problem(linear), from_text(text))


def test_a_reference_that_fails_is_the_problems_fault(judge: Judge, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text(LINEAR.replace("torch.sigmoid(self.first(x))", "self.first(x.t())"))
    with pytest.raises(UserError, match="fails on its own case"):
        judge.evaluate(load_problem(path), module(SAME_NAMES, FORWARD))


def test_missing_layers_are_refused_on_demand(
    judge: Judge, linear: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.judge.judgement.missing", lambda layers: layers[:1])
    strict = replace(judge.policy, require_full_sandbox=True)
    monkeypatch.setattr(judge, "_shop", replace(judge._shop, policy=strict))
    with pytest.raises(UserError, match="sandbox is not complete"):
        judge.evaluate(load_problem(linear), module(SAME_NAMES, FORWARD))
