"""Loading candidates: modules, functions and data entries, their state and their failures."""

from __future__ import annotations

import inspect
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from assay.build import diagnose_exception
from assay.candidates import candidate_from_source
from assay.records.errors import CandidateFailure, JudgeFault
from assay.worker.entry import Entry, _pybind_parameters, load_entry
from assay.worker.entry_types import Construction

CPU = torch.device("cpu")
MODEL = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, width, scale=1.0):
        super().__init__()
        self.scale = scale
        self.bias = nn.Parameter(torch.zeros(width))      # first, unlike in the specification
        self.weight = nn.Parameter(torch.randn(width, width))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(x @ self.weight.T + self.bias) * self.scale
"""


@pytest.fixture(autouse=True)
def _clean_imports() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    written = sys.dont_write_bytecode
    yield
    sys.path[:] = path
    sys.dont_write_bytecode = written
    for name in set(sys.modules) - modules:
        if name in ("candidate", "task", "helper_of_test"):
            del sys.modules[name]


def load(source: str, folder: Path, support: dict[str, str] | None = None) -> Entry:
    return load_entry(candidate_from_source(source, "c", ".py"), None, ("x",), support or {}, folder)


def failure(source: str, folder: Path) -> CandidateFailure:
    with pytest.raises(CandidateFailure) as caught:
        load(source, folder).construct(Construction([], {}, 0, CPU, None, "constructed"))
    assert caught.value.status == "build_failed"
    return caught.value


def test_module(tmp_path: Path) -> None:
    entry = load(MODEL, tmp_path)
    entry.construct(Construction([4], {"scale": 3.0}, 7, CPU, None, "eval"))
    torch.manual_seed(7)
    weight = torch.randn(4, 4)
    x = torch.randn(2, 4)
    torch.testing.assert_close(entry([x]), x @ weight.T * 3.0)


def test_state_goes_by_name_not_by_order(tmp_path: Path) -> None:
    entry = load(MODEL, tmp_path)
    entry.construct(Construction([4], {}, 0, CPU, None, "eval"))
    reference = torch.nn.Linear(4, 4)
    module = entry._module  # type: ignore[attr-defined]
    version = module.weight._version
    report = entry.load_state({**reference.state_dict(), "extra.scale": torch.ones(1)})
    assert set(report.loaded) == {"weight", "bias"}
    assert (report.missing, report.unexpected, report.mismatched) == (("steps",), ("extra.scale",), {})
    assert module.weight._version > version and module.weight.requires_grad
    x = torch.randn(2, 4)
    torch.testing.assert_close(entry([x]), reference(x))


def test_mismatched_shapes_are_reported_and_not_loaded(tmp_path: Path) -> None:
    entry = load(MODEL, tmp_path)
    entry.construct(Construction([4], {}, 0, CPU, None, "eval"))
    report = entry.load_state({"weight": torch.ones(3, 4), "bias": torch.ones(4)})
    assert report.loaded == ("bias",) and report.mismatched == {"weight": ((4, 4), (3, 4))}


def test_load_hooks_run(tmp_path: Path) -> None:
    source = (
        MODEL
        + """
    def _load_from_state_dict(self, state_dict, prefix, *rest):
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self.packed = self.weight.detach().clone() * 2
"""
    )
    entry = load(source, tmp_path)
    entry.construct(Construction([2], {}, 0, CPU, None, "eval"))
    entry.load_state({"weight": torch.ones(2, 2)})
    assert torch.equal(entry._module.packed, torch.full((2, 2), 2.0))  # type: ignore[attr-defined]


@pytest.mark.parametrize(("mode", "training"), [("constructed", True), ("train", True), ("eval", False)])
def test_mode_and_dtype(tmp_path: Path, mode: str, training: bool) -> None:
    entry = load(MODEL, tmp_path)
    entry.construct(Construction([4], {}, 0, CPU, torch.float64, mode))
    assert entry._module.training is training  # type: ignore[attr-defined]
    state = entry._module.state_dict()  # type: ignore[attr-defined]
    assert (state["weight"].dtype, state["steps"].dtype) == (torch.float64, torch.int64)


def test_function_takes_state_by_keyword(tmp_path: Path) -> None:
    entry = load("def forward(x, fc_weight, *, bias=None):\n    return x @ fc_weight.T + bias\n", tmp_path)
    entry.construct(Construction([1, 2], {"a": 3}, 0, CPU, None, "eval"))
    weight, bias = torch.randn(3, 4), torch.randn(3)
    report = entry.load_state({"fc.weight": weight, "bias": bias, "other": bias})
    assert report.loaded == ("fc.weight", "bias") and report.unexpected == ("other",)
    x = torch.randn(2, 4)
    torch.testing.assert_close(entry([x]), x @ weight.T + bias)


def test_input_wins_over_state_of_the_same_name(tmp_path: Path) -> None:
    entry = load("def forward(x, weight):\n    return x * weight\n", tmp_path)
    entry.load_state({"weight": torch.full((1,), 5.0)})
    assert entry([torch.ones(1), torch.full((1,), 2.0)]).item() == 2.0


def test_custom_kernel_with_support_files(tmp_path: Path) -> None:
    source = "from task import twice\ndef custom_kernel(data):\n    a, b = data\n    return twice(a) + b\n"
    entry = load(source, tmp_path, {"task.py": "def twice(x):\n    return 2 * x\n"})
    assert entry([(torch.ones(2), torch.ones(2))]).tolist() == [3.0, 3.0]
    assert entry([torch.ones(2), torch.ones(2)]).tolist() == [3.0, 3.0]
    assert entry.load_state({"w": torch.ones(1)}).unexpected == ("w",)


def test_support_files_stay_in_the_folder(tmp_path: Path) -> None:
    for name in ("../task.py", "/etc/task.py", "candidate.py"):
        with pytest.raises(JudgeFault):
            load("def forward(x): return x\n", tmp_path / "f", {name: ""})


def test_source_can_be_inspected_and_is_fresh(tmp_path: Path) -> None:
    for value in (1, 2):  # same size, same second: bytecode of the first must not be taken for the second
        load(f"def forward(x):\n    return {value}\n", tmp_path)
        function = sys.modules["candidate"].forward
        assert function(0) == value
    assert "return 2" in Path(inspect.getsourcefile(function) or "").read_text()


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("class ModelNew(\n", "import_failed", "SyntaxError"),
        ("import no_such_module_at_all\nclass ModelNew: pass\n", "import_failed", "No module named"),
        ("import sys\nclass ModelNew: pass\nsys.exit(0)\n", "import_failed", "SystemExit"),
        ("class ModelNew: pass\n", "not_a_module", "derive it from torch.nn.Module"),
        ("ModelNew = 3\n", "not_a_module", "derive it"),
        ("def forward(x): return x\ndel forward\n", "no_entry", "defines no forward"),
        (MODEL, "construct_failed", "missing 1 required positional argument"),
    ],
)
def test_failures_name_the_cause(tmp_path: Path, source: str, code: str, message: str) -> None:
    found = failure(source, tmp_path)
    assert found.code == code and message in found.message + found.detail


def test_candidate_cannot_choose_its_verdict(tmp_path: Path) -> None:
    source = (
        "from assay.records.errors import CandidateFailure, JudgeFault\n"
        "class ModelNew: pass\nraise CandidateFailure('passed', 'x', 'y')\n"
    )
    assert failure(source, tmp_path).code == "import_failed"
    assert (
        failure(source.replace("CandidateFailure('passed', 'x', 'y')", "JudgeFault()"), tmp_path).code
        == "import_failed"
    )


def test_failure_quotes_the_line(tmp_path: Path) -> None:
    found = failure(
        "import torch\nclass ModelNew(torch.nn.Module): pass\nx = torch.nn.functional.gelluu\n", tmp_path
    )
    assert found.message == "hallucinated API: torch.nn.functional has no gelluu; did you mean gelu"
    assert "line 3: x = torch.nn.functional.gelluu" in found.detail


def test_hallucinated_triton_function_for_real(tmp_path: Path) -> None:
    triton = pytest.importorskip("triton")
    compiler = pytest.importorskip("triton.backends.compiler")
    source = """
import triton
import triton.language as tl

@triton.jit
def kernel(x, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(x + o, tl.maximumm(tl.load(x + o), 0.0))

def forward(x):
    return x
"""
    load(source, tmp_path)
    kernel = sys.modules["candidate"].kernel
    made = triton.compiler.ASTSource(kernel, {"x": "*fp32", "N": "constexpr"}, {(1,): 128})
    with pytest.raises(triton.CompilationError) as caught:
        triton.compile(made, target=compiler.GPUTarget("cuda", 90, 32))
    found = diagnose_exception(caught.value, source)
    assert found.summary == "hallucinated API: triton.language has no maximumm; did you mean maximum"
    assert found.line == 8 and found.excerpt.startswith("tl.store(x + o")


def test_substitutes_do_not_exist_in_triton() -> None:
    """A hint against a function that does exist would be a lie."""
    language = pytest.importorskip("triton.language")
    from assay.build.hints import TRITON_SUBSTITUTES

    assert [name for name in TRITON_SUBSTITUTES if hasattr(language, name)] == []


@pytest.mark.skipif(shutil.which("ninja") is None, reason="load_inline needs ninja on PATH")
def test_load_inline_failure_is_diagnosed(tmp_path: Path) -> None:
    source = """
from torch.utils.cpp_extension import load_inline
SRC = '''
int forward(int x) {
  return x + nonsense;
}
'''
forward = load_inline("tiny", cpp_sources=SRC, functions=["forward"], no_implicit_headers=True).forward
"""
    found = failure(source, tmp_path)
    assert "nonsense" in found.message and "line 5: return x + nonsense;" in found.detail


def test_pybind_docstrings() -> None:
    text = "forward(x: torch.Tensor, w: torch.Tensor, eps: float = 1e-05) -> torch.Tensor\n"
    assert _pybind_parameters(text) == [("x", False), ("w", False), ("eps", True)]
    assert _pybind_parameters("forward(arg0: tuple[int, int], arg1: float) -> None") == [
        ("arg0", False),
        ("arg1", False),
    ]
    assert _pybind_parameters("forward(*args, **kwargs)\nOverloaded function.\n") is None
    assert _pybind_parameters("") is None
