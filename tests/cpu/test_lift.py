"""Lifting for real on a CPU: inductor in its own process or here, the printed file run against the module."""

from __future__ import annotations

import ctypes
import inspect
import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from captured_here import captured_here
from written_files import module_from

from assay import lift
from assay.candidates import read_candidate
from assay.judge import Judge, Policy
from assay.lift.problem_source import model_source
from assay.problems import Case, load_problem
from assay.worker.inline_builds import InlineBuilds

PROBLEM = '''"""A norm with a gate."""

import math

import torch
from torch import nn

rows, cols = 24, 80
scale = 2.0
unused = [1]


class Model(nn.Module):
    def __init__(self, features: int, groups: int) -> None:
        super().__init__()
        self.groups = groups
        self.gain = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = nn.functional.layer_norm(x, self.gain.shape, self.gain) * scale / self.groups
        return torch.tanh(y) * torch.sigmoid(gate), torch.softmax(x, -1).amax(0)


def get_inputs():
    return [torch.randn(rows, cols), torch.randn(rows, cols)]


def get_init_inputs():
    return [cols, 4]


ABOUT = {"category": "norm", "regime": "memory"}
'''
NUMBERED = (
    "self.parts = nn.Sequential(nn.LayerNorm(features), nn.LayerNorm(features))\n        "
    "self.named = nn.ModuleDict({'a-b': nn.LayerNorm(features)})"
)
INPLACE = PROBLEM.replace("y = nn.", "gate.add_(1)\n        y = nn.")
numbers = itertools.count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lift")


def problem_at(folder: Path, text: str, name: str) -> Any:
    path = folder / f"{name}.py"
    path.write_text(text)
    return load_problem(path)


@dataclass
class Served:
    """What one process has answered."""

    too_slow: str
    """Why it answered nothing at first."""
    kept: list[lift.Capture]
    compiled: Path
    """Is there once the compiler has been asked for anything."""

    @property
    def base(self) -> lift.Capture:
        return self.kept[1]


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    """A process of its own, with a compiler that compiles nothing, for one variant after the other."""
    compiler, asked = folder / "compiler", folder / "asked"
    compiler.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec g++ "$@"\necho "$@" >> {asked}\nexit 1\n')
    compiler.chmod(0o755)
    problem = problem_at(folder, PROBLEM, "gated")
    with (
        pytest.MonkeyPatch.context() as patch,
        closing(lift.Capturer(problem, Case("nominal"), "cpu")) as capturer,
    ):
        patch.setenv("CXX", str(compiler))
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))  # what was compiled once is kept
        with pytest.raises(lift.CannotLift) as refusal:
            capturer.capture("base", 0.05)
        kept = [capturer.capture(name, 300.0) for name in ("static", "base")]
    yield Served(str(refusal.value), kept, asked)


@pytest.fixture(scope="module")
def candidate(served: Served, folder: Path) -> Any:
    lifted = lift.read(served.base)
    (actions,) = lift.usual(lifted)
    for action in actions:
        lifted = lift.apply(lifted, action)
    assert {"vector_math", "simd_reductions=16"} <= set(actions)
    return module_from(lift.write(lifted, load_problem(folder / "gated.py"), actions), folder)


def test_inductor_is_read_and_nothing_compiled(served: Served) -> None:
    """Not even to find out which instructions there are, none of which a file uses by name."""
    assert all("cpp_fused" in capture.wrapper for capture in served.kept)
    assert not served.compiled.exists()


def compared(candidate: Any, x: torch.Tensor, gate: torch.Tensor, groups: int = 4) -> bool:
    """The same answers as the module's; whether the kernels gave them."""
    torch.manual_seed(1)
    new = candidate.ModelNew(x.shape[-1], groups).to(x.dtype)
    own: list[int] = []
    forward = candidate.Model.forward

    def noticed(*arguments: Any) -> Any:
        own.append(1)
        return forward(*arguments)

    candidate.Model.forward = noticed
    try:
        got = new(x, gate)
    finally:
        candidate.Model.forward = forward
    want = forward(new, x, gate)
    for one, other in zip(got, want, strict=True):
        assert one.dtype == other.dtype and one.stride() == other.stride()
        torch.testing.assert_close(one, other, equal_nan=True)
    return not own


def draw(*sizes: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(*sizes, generator=generator).to(dtype) for _ in range(2)]


def test_the_file_answers_as_the_module_does_for_any_number_of_rows(candidate: Any) -> None:
    with torch.no_grad():
        assert compared(candidate, *draw(24, 80))
        assert compared(candidate, *draw(37, 80))


def test_special_values_come_out_as_from_the_module(candidate: Any) -> None:
    x, gate = draw(24, 80)
    gate[0, :4] = torch.tensor([torch.inf, -torch.inf, torch.nan, 90.0])
    x[1, 3] = torch.nan
    x[2, 7] = -torch.inf
    with torch.no_grad():
        assert compared(candidate, x, gate)


def test_whatever_it_was_not_compiled_for_takes_the_modules_own_path(candidate: Any) -> None:
    with torch.no_grad():
        assert not compared(candidate, *draw(24, 96)), "another width of the parameter"
        assert not compared(candidate, *draw(24, 80, dtype=torch.float64))
        assert not compared(candidate, *(one.t().contiguous().t() for one in draw(24, 80)))
        assert not compared(candidate, *draw(24, 80), groups=8), "a constant of the module"
    assert not compared(candidate, *draw(24, 80)), "gradients would be recorded"


def test_the_file_holds_what_model_needs_and_nothing_of_inductor(folder: Path, served: Served) -> None:
    problem = load_problem(folder / "gated.py")
    text = lift.write(lift.read(served.base), problem, ("variant:base",))
    assert (
        "_inductor" not in text and "get_inputs" not in text and "ABOUT" not in text and "unused" not in text
    )
    imports, model = model_source(problem)
    assert imports == "import torch\nfrom torch import nn" and model.startswith("scale = 2.0")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (INPLACE, "changes its inputs"),
        (PROBLEM.replace("* torch.sigmoid(gate),", "* float(gate.max()),"), "export refuses"),
    ],
)
def test_what_cannot_stand_alone_is_refused_with_a_reason(folder: Path, text: str, why: str) -> None:
    problem = problem_at(folder, text, f"refused{next(numbers)}")
    with pytest.raises(lift.CannotLift, match=why):
        captured_here(problem, Case("nominal"))


def test_parts_that_have_numbers_for_names_are_found(folder: Path) -> None:
    text = (
        PROBLEM.replace("self.groups = groups", "self.groups = groups\n        " + NUMBERED)
        .replace("* scale / self.groups", "* self.parts[1].weight * self.named['a-b'].weight")
        .replace("y = nn.", "y = self.parts[0].eps + nn.")
    )
    problem = problem_at(folder, text, "numbered")
    module = module_from(lift.write(lift.read(captured_here(problem, Case("nominal"))), problem), folder)
    with torch.no_grad():
        assert compared(module, *draw(24, 80))


def test_one_process_serves_every_variant_and_is_replaced_where_it_failed(
    folder: Path, served: Served
) -> None:
    assert "longer than" in served.too_slow, "it was ended"
    assert [one.variant for one in served.kept] == ["static", "base"]
    problem = load_problem(folder / "gated.py")
    alone = captured_here(problem, Case("nominal"))
    actions = ("variant:base",)
    assert lift.write(lift.read(served.base), problem, actions) == lift.write(
        lift.read(alone), problem, actions
    )
    static, base = served.kept
    assert static.ranges == {} and base.ranges, "sizes are fixed in one and free in the other"


def test_libraries_that_are_no_modules_are_remembered_as_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch.utils.cpp_extension as cpp_extension

    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    monkeypatch.setattr(cpp_extension, "load_inline", cpp_extension.load_inline)
    monkeypatch.setattr(cpp_extension, "load", cpp_extension.load)
    original = cpp_extension.load_inline
    asked = {
        "name": "answers",
        "cpp_sources": 'extern "C" int answer() { return 42; }',
        "is_python_module": False,
        "no_implicit_headers": True,
    }
    first = InlineBuilds(tmp_path / "first")
    first.install()
    assert ctypes.CDLL(cpp_extension.load_inline(**asked)).answer() == 42

    def never(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("built again")

    never.__name__ = original.__name__
    setattr(never, "__signature__", inspect.signature(original))  # noqa: B010
    monkeypatch.setattr(cpp_extension, "load_inline", never)
    second = InlineBuilds(tmp_path / "second")
    second.unpack(first.pack())
    second.install()
    path = cpp_extension.load_inline(**asked)
    assert Path(path).parent == tmp_path / "second" and ctypes.CDLL(path).answer() == 42


TASK = """
import torch
from task import input_t

GAIN = 3.0
UNUSED = 1


def generate_input(rows: int, cols: int, seed: int) -> input_t:
    generator = torch.Generator().manual_seed(seed)
    return {data}


def ref_kernel(data: input_t) -> torch.Tensor:
    {taken} = data
    {answer} (torch.tanh(x) * GAIN).sum(-1)
    return y


def check_implementation(data: input_t, output: torch.Tensor):
    return torch.allclose(output, ref_kernel(data), rtol=1e-4, atol=1e-4), "off"
"""
LISTED = """
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "task.py", "source": "task.py"}
  - {"name": "reference.py", "source": "reference.py"}
lang: "py"
tests:
  - {"rows": 3, "cols": 17, "seed": 1}
benchmarks:
  - {"rows": 24, "cols": 80, "seed": 2}
"""


DRAWN = "torch.randn(rows, cols, generator=generator)"
TAKEN = [
    (f"{DRAWN}, 1, None", "x, _, _", "y ="),
    (DRAWN, "x", "y ="),
    (f"{DRAWN}, torch.empty(rows)", "x, y", "y[...] ="),
    (f"{DRAWN}, torch.ones(rows)", "x, y", "y +="),
]
"""Parts, a tensor, a place for the answer, and one that is read before it is written."""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge("cpu", Policy(speed=False), tmp_path_factory.mktemp("cache")) as one:
        yield one


@pytest.mark.parametrize(("data", "taken", "answer"), TAKEN)
def test_a_task_becomes_a_submission(
    judge: Judge, data: str, taken: str, answer: str, tmp_path: Path
) -> None:
    for name, text in (
        ("task.yml", LISTED),
        ("task.py", "input_t = object"),
        ("reference.py", TASK.format(data=data, taken=taken, answer=answer)),
    ):
        (tmp_path / name).write_text(text)
    problem = load_problem(tmp_path)
    captured = captured_here(problem, problem.nominal())
    text = lift.write(lift.read(captured), problem)
    assert ("copy_(" in text) == (answer == "y +=")
    assert "UNUSED" not in text and "ModelNew" not in text and "generate_input" not in text
    candidate = tmp_path / "submission.py"
    candidate.write_text(text)
    verdict = judge.evaluate(problem, read_candidate(candidate))
    assert verdict.status == "passed" and verdict.candidate.entry == "custom_kernel"
    assert len(verdict.cases) > 1


SWAPPED = TASK.format(
    data="torch.randn(rows, cols, generator=generator), torch.ones(rows, cols)",
    taken="x, z",
    answer="kept = x.clone(); x[...] = z; z[...] = kept; y =",
)


def test_a_task_that_exchanges_its_inputs_leaves_what_the_reference_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("task.yml", LISTED), ("task.py", "input_t = object"), ("reference.py", SWAPPED)):
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    problem = load_problem(tmp_path)
    written = lift.write(lift.read(captured_here(problem, problem.nominal())), problem)
    mine = draw(24, 80)
    before = [x.clone() for x in mine]
    torch.testing.assert_close(
        module_from(written, tmp_path).custom_kernel(tuple(mine)), (before[1].tanh() * 3).sum(-1)
    )
    assert torch.equal(mine[0], before[1]) and torch.equal(mine[1], before[0])


def test_a_number_that_has_no_literal_is_refused(tmp_path: Path) -> None:
    endless = TASK.format(data=f'{DRAWN}, float("inf")', taken="x, _", answer="y =")
    for name, text in (("task.yml", LISTED), ("task.py", "input_t = object"), ("reference.py", endless)):
        (tmp_path / name).write_text(text)
    problem = load_problem(tmp_path)
    captured = captured_here(problem, problem.nominal())
    with pytest.raises(lift.CannotLift, match="inf, which cannot be written down"):
        lift.read(captured)
