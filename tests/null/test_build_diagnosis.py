"""Diagnoses of recorded outputs, keys and architectures; no compiler runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.build import Toolchain, build_key, diagnose, diagnose_exception, needs_build
from assay.build.toolchain import normal_arch
from assay.candidates import candidate_from_source
from assay.records.errors import UserError

CPP = "#include <cmath>\nvoid f() {\n  x.foo(2);\n}\n"

GNU = """candidate.cpp: In function \u2018void f()\u2019:
candidate.cpp:3:5: error: \u2018tanhh\u2019 was not declared in this scope; did you mean \u2018tanhl\u2019?
    3 |   x.foo(2);
      |     ^~~
"""
EDG = """candidate.cu(3): error: identifier "__nv_bfloat16" is undefined
    x.foo(2);
      ^

1 error detected in the compilation of "candidate.cu".
"""
HEADER = """/usr/local/cuda/include/cub/cub.cuh(77): error: no operator "+" matches these operands
            detected during instantiation of "void g()" at line 3 of candidate.cu

"""
NINJA = """Traceback (most recent call last):
  File "/tmp/x/candidate.py", line 5, in <module>
RuntimeError: Error building extension 'zz': [1/2] c++ -c /tmp/ext/zz/main.cpp -o main.o
FAILED: [code=1] main.o
/tmp/ext/zz/main.cpp:9:12: error: 'class at::Tensor' has no member named 'foo'
    9 |   x.foo(2);
      |     ^~~
ninja: build stopped: subcommand failed.
"""


def test_gnu() -> None:
    found = diagnose("g++", GNU, CPP)
    assert found.summary == "compile error: 'tanhh' was not declared in this scope; did you mean 'tanhl'?"
    assert (found.line, found.excerpt, found.hint) == (3, "x.foo(2);", "did you mean tanhl")


@pytest.mark.parametrize("tool", ["nvcc", "nvrtc"])
def test_edg(tool: str) -> None:
    found = diagnose(tool, EDG, CPP)
    assert (found.line, found.hint) == (3, "include <cuda_bf16.h>")


def test_mention_of_half_is_not_a_missing_header() -> None:
    text = 'candidate.cu(3): error: no suitable conversion function from "__half" to "float" exists\n'
    assert "__half2float" in diagnose("nvcc", text, CPP).hint


def test_error_in_a_header_gets_the_line_that_led_there() -> None:
    found = diagnose("nvcc", HEADER, CPP)
    assert found.line == 3 and "cub.cuh:77" in found.summary
    assert diagnose("nvcc", HEADER.split("\n")[0] + "\n", CPP).line is None


@pytest.mark.parametrize("tool", ["ninja", "python"])
def test_ninja_finds_the_line_by_its_text(tool: str) -> None:
    source = 'SRC = """\nTensor f(Tensor x) {\n  x.foo(2);\n}\n"""\nload_inline("zz", SRC)\n'
    found = diagnose(tool, NINJA, source)
    assert found.line == 3 and "has no member named 'foo'" in found.summary


def test_ptxas() -> None:
    text = (
        "ptxas info    : 0 bytes gmem\nptxas error   : Entry function 'k' uses too much shared data (0x4e2)\n"
    )
    found = diagnose("ptxas", text, CPP)
    assert (
        found.summary.startswith("ptxas: Entry function 'k' uses too much")
        and "extern __shared__" in found.hint
    )


def test_linker_and_silence() -> None:
    assert "link error" in diagnose("g++", "/usr/bin/ld: a.o: undefined reference to `foo'\n", CPP).summary
    assert diagnose("g++", "", CPP).summary == "compile error: the compiler failed and said nothing"


TRITON = """Traceback (most recent call last):
  File "/x/triton/compiler/compiler.py", line 80, in make_ir
    return ast_to_ttir(self.fn)
triton.compiler.errors.CompilationError: at 4:8:
def k(x, n, B: tl.constexpr):
    o = tl.arange(0, B)
    v = tl.load(x + o, mask=o < n)
    v = tl.tanh(v)
        ^
AttributeError("module 'triton.language' has no attribute 'tanh'")
"""


def test_hallucinated_triton_function() -> None:
    source = "import triton\n\n@triton.jit\ndef k(x, n, B):\n    o = 1\n    v = tl.tanh(v)\n"
    found = diagnose("triton", TRITON, source)
    assert found.summary == "hallucinated API: triton.language has no tanh"
    assert (found.line, found.excerpt) == (6, "v = tl.tanh(v)") and "libdevice.tanh" in found.hint


def test_close_name_is_suggested() -> None:
    text = "Traceback (most recent call last):\nAttributeError: module 'json' has no attribute 'lods'\n"
    import json  # noqa: F401 - the module has to be loaded for names to be compared

    assert diagnose("python", text, "").summary == "hallucinated API: json has no lods; did you mean loads"


def test_python_exceptions() -> None:
    source = "x = 1\ny = (\n"
    try:
        compile(source, "/tmp/q/candidate.py", "exec")
    except SyntaxError as error:
        found = diagnose_exception(error, source)
    assert found.summary == "SyntaxError: '(' was never closed" and (found.line, found.excerpt) == (
        2,
        "y = (",
    )
    try:
        exec(compile("a = 1\nb = a / 0\n", "/tmp/q/candidate.py", "exec"), {})
    except ZeroDivisionError as error:
        found = diagnose_exception(error, "a = 1\nb = a / 0\n")
    assert (found.summary, found.line) == ("ZeroDivisionError: division by zero", 2)


@pytest.mark.parametrize(
    "text", [GNU * 500, TRITON * 50, "E: " + "x" * 10_000, "error: " + "y" * 9_999, NINJA * 99]
)
def test_short_whatever_the_output(text: str) -> None:
    for tool in ("g++", "nvcc", "python", "ninja"):
        shown = diagnose(tool, text, CPP).render()
        assert len(shown.splitlines()) <= 12 and len(shown) < 1200


TOOLS = Toolchain("/g++", "12", "/nvcc", "13", "/nvrtc", "13", (), "sm_90a", "2.13", "3.11")


def test_build_key_changes_with_what_matters() -> None:
    bare = candidate_from_source("// assay: launch k<<<1, 1>>>(x)\n", "a", ".cu")
    extension = candidate_from_source("#include <torch/extension.h>\n", "a", ".cpp")
    assert build_key(bare, TOOLS) == build_key(replace(bare, name="other"), TOOLS)
    assert build_key(bare, TOOLS) != build_key(bare, replace(TOOLS, cuda_arch="sm_80"))
    assert build_key(bare, TOOLS) != build_key(bare, replace(TOOLS, nvrtc_version=None))
    assert build_key(bare, TOOLS) == build_key(bare, replace(TOOLS, torch_version="2.14"))
    assert build_key(extension, TOOLS) != build_key(extension, replace(TOOLS, torch_version="2.14"))
    assert build_key(extension, TOOLS) == build_key(extension, replace(TOOLS, cuda_arch="sm_80"))
    assert needs_build(bare) and needs_build(extension)
    assert not needs_build(candidate_from_source("def forward(x): return x\n", "a", ".py"))


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("9.0", "sm_90a"),
        ("90", "sm_90a"),
        ("sm_90", "sm_90a"),
        ("sm_90a", "sm_90a"),
        ("8.6", "sm_86"),
        ("10.0", "sm_100a"),
    ],
)
def test_architectures(given: str, normal: str) -> None:
    assert normal_arch(given) == normal


def test_bad_architecture() -> None:
    with pytest.raises(UserError, match="sm_90"):
        normal_arch("hopper")
