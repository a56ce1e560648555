"""Reading candidates, launch directives and C signatures; nothing is run."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

import pytest

from assay.candidates import candidate_from_source, read_candidate
from assay.candidates.launch import Assign, Invoke, parse_directives
from assay.candidates.signature import parse_signature
from assay.records.errors import CandidateFailure, UserError

MODEL = "class ModelNew:\n    def forward(self, x):\n        return x\n"
DIRECTIVES = """// assay: out y = torch.empty_like(x)
// assay: launch k<<<x.shape[0], 256>>>(x, y)
// assay: return y
"""


@pytest.mark.parametrize(
    ("source", "entry", "language"),
    [
        ("import torch\n" + MODEL, "ModelNew", "torch"),
        ("import triton\nimport triton.language as tl\n" + MODEL, "ModelNew", "triton"),
        ("from triton import jit\ndef forward(x):\n    return x\n", "forward", "triton"),
        ("from triton.experimental import gluon\ndef forward(x): return x\n", "forward", "gluon"),
        ("from triton.experimental.gluon import language as gl\n" + MODEL, "ModelNew", "gluon"),
        ("def custom_kernel(data):\n    return data\n", "custom_kernel", "torch"),
        ("def run(d): return d\ncustom_kernel = run\n", "custom_kernel", "torch"),
        ("def custom_kernel(d): return d\ndef forward(x): return x\n" + MODEL, "ModelNew", "torch"),
        ("try:\n    def forward(x): return x\nexcept ImportError:\n    raise\n", "forward", "torch"),
        (
            "from torch.utils.cpp_extension import load_inline\n"
            "m = load_inline('a', cpp_sources='int f();', cuda_sources=SRC)\n" + MODEL,
            "ModelNew",
            "cuda",
        ),
        (
            "from torch.utils.cpp_extension import load_inline\n"
            "m = load_inline('a', cpp_sources='int f();', cuda_sources=[])\n" + MODEL,
            "ModelNew",
            "cpp",
        ),
        (
            "from torch.utils import cpp_extension\nm = cpp_extension.load('a', ['k.cu'])\n" + MODEL,
            "ModelNew",
            "cuda",
        ),
        ("SRC = '__global__ void k() {}'\n" + MODEL, "ModelNew", "cuda"),
    ],
)
def test_python_forms(source: str, entry: str, language: str) -> None:
    candidate = candidate_from_source(source, "c", ".py")
    assert (candidate.entry, candidate.language, candidate.suffix) == (entry, language, ".py")
    assert candidate.digest == hashlib.sha256(source.encode()).hexdigest()


@pytest.mark.parametrize(
    ("source", "suffix", "entry", "language", "plain"),
    [
        (DIRECTIVES, ".cu", "launch", "cuda", ".cu"),
        (DIRECTIVES, ".cuh", "launch", "cuda", ".cu"),
        ("// assay: call f(x)\n", ".cc", "launch", "cpp", ".cpp"),
        ("#include <torch/extension.h>\n", ".cu", "extension", "cuda", ".cu"),
        ("  # include <ATen/ATen.h>\n", ".cpp", "extension", "cpp", ".cpp"),
        ("#include <pybind11/pybind11.h>\n", ".CPP", "extension", "cpp", ".cpp"),
    ],
)
def test_native_forms(source: str, suffix: str, entry: str, language: str, plain: str) -> None:
    candidate = candidate_from_source(source, "c", suffix)
    assert (candidate.entry, candidate.language, candidate.suffix) == (entry, language, plain)


def test_syntax_error_still_reads() -> None:
    candidate = candidate_from_source("import triton\nclass ModelNew(:\n  pass\n", "c", ".py")
    assert (candidate.entry, candidate.language) == ("ModelNew", "triton")


def test_method_called_forward_is_no_entry() -> None:
    with pytest.raises(UserError, match="defines no entry"):
        candidate_from_source("class Model:\n    def forward(self, x):\n        return x\n", "c", ".py")


def test_file_with_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_bytes(b"\xef\xbb\xbf" + MODEL.encode())
    candidate = read_candidate(path)
    assert candidate.name == "mine" and candidate.source == MODEL


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("empty.py", b"  \n", "is empty"),
        ("big.py", b"#" * 1_000_001, "larger than 1 MB"),
        ("latin.py", b"# caf\xe9\n", "not UTF-8"),
        ("kernel.ptx", b"x", "suffix '.ptx'"),
        ("nosuffix", b"x", "no suffix"),
        ("none.py", b"x = 1\n", "define class ModelNew"),
        ("bare.cu", b"__global__ void k() {}\n", r"// assay: launch"),
        ("bare.cpp", b"void k() {}\n", r"// assay: call"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(UserError, match=message) as caught:
        read_candidate(path)
    assert "\n" not in str(caught.value)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        read_candidate(tmp_path / "x.py")
    with pytest.raises(UserError, match="is a folder"):
        read_candidate(tmp_path)


def test_directives_in_order() -> None:
    source = """#include <cuda_fp16.h>
// assay: let rows, width = x.shape
// assay: out y = torch.empty_like(x)
//assay: launch norm<<<(rows, 2), min(width, 1024), 4 * width>>>(x, weight, \\
//     y, width, 1e-5)
// assay: return y, rows
"""
    plan = parse_directives(source, ".cu")
    let, out, launch = plan.steps
    assert isinstance(let, Assign) and let.names == ("rows", "width") and not let.is_out
    assert isinstance(out, Assign) and out.is_out and out.line == 3
    assert isinstance(launch, Invoke) and launch.kernel == "norm" and launch.line == 4
    assert launch.grid is not None and ast.unparse(launch.grid) == "(rows, 2)"
    assert launch.shared_bytes is not None and ast.unparse(launch.shared_bytes) == "4 * width"
    assert [ast.unparse(a) for a in launch.args] == ["x", "weight", "y", "width", "1e-05"]
    assert isinstance(plan.result, ast.Tuple) and plan.result_line == 6
    assert {"x", "weight", "torch", "min"} <= plan.names_used()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("out y torch.empty_like(x)", "line 1: .*not `name = expression`"),
        ("out y[0] = x", "only plain names"),
        ("let __x = 1", "two underscores"),
        ("launch k<<<1>>>(x)", "takes grid, block"),
        ("launch k<<<1, 2, 3, 4>>>(x)", "not 4 values"),
        ("launch k<<<1, 2>>>(x", "not `launch kernel"),
        ("launch k<float><<<1, 2>>>(x)", "templates"),
        ("launch k<<<1, 2>>>(x, n=3)", "positional"),
        ("launch k<<<1, 2>>>(*xs)", "write them out"),
        ("launch k<<<1, 2>>>(x +)", "not a Python expression"),
        ("call k(x)", "`call` is for .cpp"),
        ("start k(x)", "unknown word 'start'"),
        ("return", "expression is missing"),
        ("return x", "nothing would run"),
        ("launch k<<<1, 2>>>(x)", "no `// assay: return"),
        ("return x\n// assay: let y = 1", "line 2: .*nothing may follow"),
    ],
)
def test_bad_directives_name_the_line(text: str, message: str) -> None:
    with pytest.raises(CandidateFailure, match=message) as caught:
        parse_directives(f"// assay: {text}\n", ".cu")
    assert (caught.value.status, caught.value.code) == ("build_failed", "bad_directive")


def test_signature_types() -> None:
    source = """
typedef __nv_bfloat16 elem;
using index = long long;
#define SCALE float
// extern "C" __global__ void norm(int wrong);
__device__ float helper(int a, int b);
extern "C" __global__ __launch_bounds__(256) void norm(
    const float* __restrict__ x, elem *y, const half2* z, void* raw, uint8_t mask[],
    int n, unsigned m, const index stride, size_t total, SCALE eps, double d, bool flag, std::int64_t last)
{ norm_body(x, y); }
"""
    found = parse_signature(source, "norm", is_cuda=True)
    assert [(p.name, p.is_pointer) for p in found[:5]] == [
        ("x", True),
        ("y", True),
        ("z", True),
        ("raw", True),
        ("mask", True),
    ]
    dtypes = [p.dtypes for p in found[:5]]
    assert dtypes == [("float32",), ("bfloat16",), ("float16",), (), ("uint8", "bool", "int8")]
    scalars = ["int32", "uint32", "int64", "uint64", "float32", "float64", "bool", "int64"]
    assert [p.scalar for p in found[5:]] == scalars
    assert [p.name for p in found[5:]] == ["n", "m", "stride", "total", "eps", "d", "flag", "last"]


def test_signature_inside_extern_block() -> None:
    source = (
        'extern "C" {\nvoid add(const float* x, long long n) { for (;;) {} }\n}\nint main() { return 0; }\n'
    )
    assert [p.describe() for p in parse_signature(source, "add", is_cuda=False)] == [
        "float* x",
        "long long n",
    ]


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("__global__ void k(float* x) {}", "not_extern_c"),
        ('extern "C" { int a; }\n__global__ void k(float* x) {}', "not_extern_c"),
        ("template <typename T> __global__ void k(T* x) {}", "template_kernel"),
        ('extern "C" __global__ void other(float* x) {}', "no_kernel"),
        ('extern "C" __device__ void k(float* x) {}', "no_kernel"),
        ('extern "C" __global__ void k(const float& x) {}', "bad_parameter"),
        ('extern "C" __global__ void k(float** x) {}', "bad_parameter"),
        ('extern "C" __global__ void k(__half eps) {}', "bad_parameter"),
        ('extern "C" __global__ void k(const CUtensorMap map) {}', "bad_parameter"),
    ],
)
def test_signatures_that_cannot_be_called(source: str, code: str) -> None:
    with pytest.raises(CandidateFailure) as caught:
        parse_signature(source, "k", is_cuda=True)
    assert caught.value.code == code
