"""What a lifted file takes over from the problem's file, and that neither gets in the other's way."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from captured_here import captured_here
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from written_files import module_from

from assay import lift
from assay.lift import Kernel, Launch, Lifted, Line
from assay.problems import Case, load_problem

PROBLEM = """{top}


class Model(Module):
    def forward(self, {inputs}):
        return {formula}


def get_inputs():
    return [randn(24, 80){more}]


def get_init_inputs():
    return []


def helper_of_nobody():
    return CASES


CASES = [1, 2]

if __name__ == "__main__":
    print(helper_of_nobody(), get_inputs())
"""
IMPORTS = "from torch import randn\nfrom torch.nn import Module\n\n"
TASK = """{top}


def generate_input(rows: int, seed: int):
    return torch.randn(rows, 8), torch.randn(rows)


def ref_kernel(data):
    x, y = data
    return {formula}


check_implementation = make_match_reference(ref_kernel)
"""
LISTED = """
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "utils.py", "source": "utils.py"}
  - {"name": "reference.py", "source": "reference.py"}
lang: "py"
tests:
  - {"rows": 3, "seed": 1}
benchmarks:
  - {"rows": 24, "seed": 2}
"""
UTILS = """
tl = torch = None
KEPT = {}


def make_match_reference(reference):
    return lambda data, output: (True, "")


def keep(value):
    KEPT["gain"] = value
    return value


def gained(x):
    return x * KEPT["gain"]
"""
TRIPLED = """extern "C" void tripled(const float* in_ptr0, float* out_ptr0, const int64_t ks0) {
    for (int64_t x0 = 0; x0 < ks0; ++x0) {
        out_ptr0[x0] = 3.0f * in_ptr0[x0];
    }
}"""
TRITON_TRIPLED = """@triton.jit
def tripled(in_ptr0, out_ptr0, ks0, XBLOCK: tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    tmp0 = tl.load(in_ptr0 + xindex, xindex < ks0)
    tl.store(out_ptr0 + xindex, larger(3.0 * tmp0, float("3.0") * tmp0), xindex < ks0)
"""
GUARDS = (
    "getattr(self, 'forward') is not None",
    "x.is_cpu",
    "x.dim() == 2",
    *(f"x.size(0) {relation}" for relation in (">= 2", ">= 3", ">= 4", ">= 5", ">= 6", "<= 512", "<= 1024")),
    "x.size(1) == max(80, x.size(1))",
    "max(80, x.size(1)) == 80",
    "x.is_contiguous()",
)
numbers = itertools.count()


def in_lines() -> Lifted:
    """Three times x in torch's words, for rows of 80."""
    return Lifted(
        "cpp", "base", ("x",), {}, GUARDS, (), (Line("buf0 = torch.mul(x, 3.0)"), Line("buf0.abs()")), "buf0"
    )


def in_cpp() -> Lifted:
    kernel = Kernel("tripled", TRIPLED, ("const float*", "float*", "const int64_t"))
    steps = (Line("buf0 = torch.empty_like(x)"), Launch("tripled", ("x", "buf0", "x.numel()")))
    return replace(in_lines(), kernels=(kernel,), steps=steps)


def in_triton() -> Lifted:
    grid = ("triton.cdiv(ks0, XBLOCK)",)
    kernel = Kernel("tripled", TRITON_TRIPLED, ("in_ptr0", "out_ptr0", "ks0"), {"XBLOCK": 64}, grid)
    return replace(in_cpp(), language="triton", kernels=(kernel,))


def problem_at(folder: Path, top: str, formula: str, inputs: str = "x", more: str = "") -> Any:
    path = folder / f"problem{next(numbers)}.py"
    path.write_text(PROBLEM.format(top=top, formula=formula, inputs=inputs, more=more))
    return load_problem(path)


def task_at(folder: Path, top: str, formula: str) -> Any:
    for name, text in (
        ("task.yml", LISTED),
        ("utils.py", UTILS),
        ("reference.py", TASK.format(top=top, formula=formula)),
    ):
        (folder / name).write_text(text)
    return load_problem(folder)


def answers(candidate: Any, problem: Any, lifted: Any = None, other: Any = None) -> None:
    """As the problem's own module does: what it was lifted for by its lines, the other by Model."""
    reference = problem.bind(Case("nominal")).build_reference(0, torch.device("cpu"))
    forward, called = candidate.Model.forward, []

    def noticed(*arguments: Any) -> Any:
        called.append(1)
        return forward(*arguments)

    candidate.Model.forward = noticed
    with torch.no_grad():
        for k, inputs in enumerate((lifted, other)):
            if inputs is not None:
                torch.testing.assert_close(candidate.ModelNew()(*inputs), reference(*inputs))
                assert len(called) == k


def drawn(*shapes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    return tuple(torch.randn(*shape, generator=generator) for shape in shapes)


EFFECTS = {
    "call": ("HELD = {'gain': 1.0}\nHELD.update(gain=3.0)", "HELD['gain']"),
    "item": ("HELD = [0.0] * 4\nHELD[3] = 3.0", "HELD[3]"),
    "attribute": ("class Held:\n    gain = 1.0\n\n\nHeld.gain = 3.0", "Held.gain"),
    "another name": ("HELD = {}\nother = HELD\nother['gain'] = 3.0", "HELD['gain']"),
    "augmented": ("HELD = []\nother = HELD\nother += [3.0]", "HELD[0]"),
    "augmented item": ("HELD = [[1.0]]\nother = HELD[0]\nother[0] += 2.0", "HELD[0][0]"),
    "loop": ("HELD = [0.0] * 4\nfor place in range(4):\n    HELD[place] = float(place)", "HELD[3]"),
    "with": ("import torch\n\nHELD = []\nwith torch.no_grad():\n    HELD.append(3.0)", "HELD[0]"),
    "try": ("HELD = []\ntry:\n    HELD[0]\nexcept IndexError:\n    HELD.append(3.0)", "HELD[0]"),
    "if": ("HELD = []\nif not HELD:\n    HELD.append(3.0)", "HELD[0]"),
    "function": ("HELD = {}\n\n\ndef fill():\n    HELD['gain'] = 3.0\n\n\nfill()", "HELD['gain']"),
    "thrown away": ("HELD = {}\n_ = HELD.setdefault('gain', 3.0)", "HELD['gain']"),
    "read elsewhere": ("HELD = {}\ncols = HELD.setdefault('gain', 3.0)", "HELD['gain']"),
    "decorator": (
        "HELD = []\n\n\ndef listed(one):\n    HELD.append(one)\n\n\n@listed\ndef gain():\n    return 3.0",
        "HELD[0]()",
    ),
    "deleted": ("max = None\ndel max", "max(1.0, 3.0)"),
    "deleted item": ("HELD = [1.0, 3.0]\nother = HELD\ndel other[0]", "HELD[0]"),
    "star": ("from math import *", "floor(pi)"),
    "one line": ("HELD = []; HELD.append(1.5); other = 1", "sum(2 * HELD)"),
    "late import": ("gain = 2.0\nfrom builtins import int as gain", "gain('3')"),
    "environment": (
        "import os\n\nos.environ.update(LIFTED='3')",
        "float(__import__('os').environ['LIFTED'])",
    ),
    "loop's name": ("for gain in (1.0, 3.0):\n    pass", "gain"),
    "with's name": ("from contextlib import nullcontext\n\nwith nullcontext(3.0) as gain:\n    pass", "gain"),
    "walrus": ("if (gain := 3.0) > 1:\n    pass", "gain"),
    "match": ("match [1.0, 3.0]:\n    case [_, gain]:\n        pass", "gain"),
    "counted by a function": (
        "gain = 2.0\n\n\ndef more():\n    global gain\n    gain += 1\n\n\nmore()",
        "gain",
    ),
    "set by a function": ("def fill():\n    global gain\n    gain = 3.0\n\n\nfill()", "gain"),
    "a break of pages": ("HELD = []\n\f\nHELD.append(3.0)", "HELD[0]"),
}


@pytest.mark.parametrize("effect", EFFECTS)
def test_what_the_file_does_when_it_is_imported_is_done_in_the_lifted_file(
    effect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top, gain = EFFECTS[effect]
    monkeypatch.setenv("LIFTED", "0")
    problem = problem_at(tmp_path, IMPORTS + top, f"x * {gain}")
    wanted = problem.bind(Case("nominal")).build_reference(0, torch.device("cpu"))(torch.ones(1))
    assert wanted.tolist() == [3.0]
    monkeypatch.setenv("LIFTED", "0")
    text = lift.write(in_lines(), problem)
    answers(module_from(text, tmp_path), problem, drawn((24, 80)), drawn((24, 81)))
    for left_out in ("helper_of_nobody", "get_inputs", "CASES", "__main__"):
        assert left_out not in text


def test_a_file_whose_annotations_are_not_evaluated_keeps_them_so(tmp_path: Path) -> None:
    top = (
        "from __future__ import (\n    annotations,\n)\n\n"
        + IMPORTS
        + "def same(x: Later) -> Later:\n    return 3 * x"
    )
    problem = problem_at(tmp_path, top, "same(x)")
    candidate = module_from(lift.write(in_lines(), problem), tmp_path)
    answers(candidate, problem, drawn((24, 80)), drawn((24, 81)))


def test_modules_that_nobody_reads_are_imported_for_what_they_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lifted_setup.py").write_text("import builtins\n\nbuiltins.lifted_gain = 3.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    problem = problem_at(
        tmp_path, IMPORTS + "import math\nimport lifted_setup", "x * __builtins__['lifted_gain']"
    )
    text = lift.write(in_lines(), problem)
    assert "import lifted_setup" in text and "import math" not in text


CLASHES = {
    "the library's names": (
        "SOURCE, LIBRARY, POINTER, INTEGER, call_tripled = 0.5, 0.5, 0.5, 0.5, 1.0",
        "x * (SOURCE + LIBRARY + POINTER + INTEGER + call_tripled)",
    ),
    "imports": (
        "torch = ctypes = functools = load_inline = 0.75",
        "x * (torch + ctypes + functools + load_inline)",
    ),
    "other imports": ("import math as torch\nfrom math import floor as ctypes", "x * ctypes(torch.pi)"),
    "the guards": (
        "max = min = len = type = float = getattr = 0.5\nsizes_fit = 0.0",
        "x * (max + min + len + type + float + getattr + sizes_fit)",
    ),
    "a star": ("from torch import *\n\nmath = 3.0", "mul(x, math)"),
    "set by a function": (
        "def fill():\n    global torch, SOURCE\n    torch = SOURCE = 1.5\n\n\nfill()",
        "x * (torch + SOURCE)",
    ),
    "the entry": (
        "def ModelNew(ModelNew):\n    return ModelNew * 3.0",
        "ModelNew(x)",
    ),
    "an attribute": ("class Module(Module):\n    is_as_compiled = 3.0", "x * self.is_as_compiled"),
}


@pytest.mark.parametrize("lifted", [in_lines(), in_cpp()], ids=["lines", "cpp"])
@pytest.mark.parametrize("clash", CLASHES)
def test_names_of_the_file_step_aside_for_those_of_the_problem(
    clash: str, lifted: Lifted, tmp_path: Path
) -> None:
    top, formula = CLASHES[clash]
    problem = problem_at(tmp_path, IMPORTS + top, formula)
    candidate = module_from(lift.write(lifted, problem), tmp_path)
    answers(candidate, problem, drawn((24, 80)), drawn((24, 81)))


def test_names_are_left_alone_where_both_mean_the_same(tmp_path: Path) -> None:
    top = IMPORTS + "import ctypes\nimport torch.nn\nfrom torch.utils import cpp_extension\n\nSource = 3.0"
    problem = problem_at(tmp_path, top, "torch.mul(x, Source) * ctypes.c_int(1).value")
    text = lift.write(in_cpp(), problem)
    assert "torch_" not in text and "ctypes_" not in text and "SOURCE_" not in text
    answers(module_from(text, tmp_path), problem, drawn((24, 80)), drawn((24, 81)))


TRITON_CLASH = """import torch
import triton as language

triton = tl = larger = tripled = 0.75
libdevice = float = builtins = 1
"""


def test_triton_kernels_step_aside_as_well(tmp_path: Path) -> None:
    formula = "x * (triton + tl + larger + tripled) * libdevice * float * builtins"
    problem = problem_at(tmp_path, IMPORTS + TRITON_CLASH, formula)
    candidate = module_from(lift.write(in_triton(), problem), tmp_path)
    types = {"in_ptr0": "*fp32", "out_ptr0": "*fp32", "ks0": "i32", "XBLOCK": "constexpr"}
    (kernel,) = (one for one in vars(candidate).values() if getattr(one, "arg_names", None) == list(types))
    made = triton.compile(ASTSource(kernel, types, {(3,): 64}), target=GPUTarget("cuda", 90, 32))
    assert "maximumf" in made.asm["ttir"]
    answers(candidate, problem, other=drawn((24, 81)))


TASK_CLASH = """from utils import *
import torch
from utils import make_match_reference


class Model:
    gain = keep(1.0)


def TaskKernel(x):
    return x * Model.gain


def custom_kernel(x):
    return gained(TaskKernel(x))


task_kernel = keep(3.0)
"""


def test_a_task_may_have_names_of_the_submission_and_helpers_with_a_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = task_at(tmp_path, TASK_CLASH, "custom_kernel(x).sum(-1) + y * task_kernel")
    text = lift.write(lift.read(captured_here(problem, problem.nominal(), "static")), problem)
    assert "check_implementation" not in text and "generate_input" not in text
    monkeypatch.syspath_prepend(tmp_path)
    candidate = module_from(text, tmp_path)
    for rows in (24, 25):
        x, y = drawn((rows, 8), (rows,))
        torch.testing.assert_close(candidate.custom_kernel((x, y)), 3 * (x.sum(-1) + y))


def test_inputs_may_have_the_names_that_a_compiler_gives(tmp_path: Path) -> None:
    """Names of buffers, of sizes, of functions, of the file's own names, and of one another's shapes."""
    names = ["len", "buf0", "len_shape", "torch", "call_softmax_add_amax_mul", "sizes_fit", "SOURCE", "super"]

    def problem_with(first: str, *others: str) -> Any:
        formula = f"({first} * 3).tanh().sum(-1) + {first}.softmax(-1).amax(-1) * {' * '.join(others)}"
        return problem_at(
            tmp_path, IMPORTS, formula, ", ".join([first, *others]), ", randn(24)" * len(others)
        )

    # What the compiler calls a size goes by the place and the name of the input that has it.
    sizes = captured_here(problem_with(*names), Case("nominal")).ranges
    problem = problem_with(*names, *sizes)
    captured = captured_here(problem, Case("nominal"))
    assert sizes.keys() & captured.ranges.keys()
    rows = [(24,)] * (len(names) - 1 + len(sizes))
    candidate = module_from(lift.write(lift.read(captured), problem), tmp_path)
    given = drawn((24, 80), *rows)
    answers(candidate, problem, given, tuple(x.double() for x in given))
