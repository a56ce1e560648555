"""Real builds with the compilers of this machine, run through their entries and checked numerically."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assay.build import Toolchain, compile_candidate, find_toolchain
from assay.candidates import candidate_from_source
from assay.records.errors import CandidateFailure, JudgeFault, UserError
from assay.worker.entry import load_entry
from assay.worker.entry_types import Construction, Entry

CPU = torch.device("cpu")
LAYER_NORM = r"""
#include <cmath>
// assay: let rows = x.numel() // x.shape[-1]
// assay: out y = torch.empty_like(x)
// assay: call layer_norm(x, norm_weight, norm_bias, y, rows, x.shape[-1], 1e-5)
// assay: return y
extern "C" void layer_norm(const float* x, const float* w, const float* b, float* y,
                           long long rows, int width, float eps) {
  #pragma omp parallel for
  for (long long r = 0; r < rows; ++r) {
    const float* row = x + r * width;
    double sum = 0, square = 0;
    for (int i = 0; i < width; ++i) sum += row[i];
    const double mean = sum / width;
    for (int i = 0; i < width; ++i) square += (row[i] - mean) * (row[i] - mean);
    const double scale = 1.0 / std::sqrt(square / width + eps);
    for (int i = 0; i < width; ++i) y[r * width + i] = (row[i] - mean) * scale * w[i] + b[i];
  }
}
"""
EXTENSION = r"""
#include <torch/csrc/utils/pybind.h>
#if !__has_include(<torch/extension.h>) || !__has_include(<torch/all.h>) || __cplusplus < 202002L
#error "torch's other headers are not to be had like this"
#endif
at::Tensor forward(at::Tensor x, at::Tensor weight, double scale) {
  return x.mul(weight).mul(scale);
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &forward, pybind11::arg("x"), pybind11::arg("weight"), pybind11::arg("scale") = 2.0);
}
"""
CUDA = r"""
#include <cuda_fp16.h>
#include <stdint.h>
#include <math.h>
// assay: out y = torch.empty_like(x)
// assay: launch scale<<<cdiv(x.numel(), 256), 256>>>(x, y, x.numel())
// assay: return y
extern "C" __global__ void scale(const __half* x, float* y, int64_t n) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] = fmaxf(__half2float(x[i]), -INFINITY);
}
"""


@pytest.fixture(scope="module")
def tools() -> Toolchain:
    found = find_toolchain("9.0")
    if found.cxx is None:
        pytest.skip("no C++ compiler")
    return found


def load(source: str, suffix: str, names: tuple[str, ...], tools: Toolchain, folder: Path) -> Entry:
    candidate = candidate_from_source(source, "c", suffix)
    built = compile_candidate(candidate, tools, folder / "build")
    entry = load_entry(candidate, built.path, names, {}, folder / "work")
    entry.construct(Construction([], {}, 0, CPU, None, "constructed"))
    return entry


def test_toolchain_names_its_versions(tools: Toolchain) -> None:
    assert tools.cxx_version and tools.torch_version == torch.__version__
    assert tools.cuda_arch == "sm_90a" and tools.python_version.startswith("3.")


def test_layer_norm_on_the_cpu(tools: Toolchain, tmp_path: Path) -> None:
    entry = load(LAYER_NORM, ".cpp", ("x",), tools, tmp_path)
    weight, bias = torch.randn(65), torch.randn(65)
    report = entry.load_state({"norm.weight": weight, "norm.bias": bias, "unused": torch.ones(1)})
    assert report.loaded == ("norm.weight", "norm.bias") and report.unexpected == ("unused",)
    x = torch.randn(3, 7, 65)
    expected = torch.nn.functional.layer_norm(x, (65,), weight, bias)
    torch.testing.assert_close(entry([x]), expected, rtol=1e-5, atol=1e-5)
    strided = torch.randn(65, 7, 3).permute(2, 1, 0)
    before = strided.clone()
    expected = torch.nn.functional.layer_norm(strided, (65,), weight, bias)
    torch.testing.assert_close(entry([strided]), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(strided, before) and not strided.is_contiguous()
    with pytest.raises(TypeError, match="float64, the pointer wants float32"):
        entry([x.double()])


ADD = r"""
// assay: out y = {out}
// assay: call add({args})
// assay: return y, k
// assay-free comment
extern "C" void add(const float* x, const float* z, float* y, int n, bool twice) {{
  for (int i = 0; i < n; ++i) y[i] = (twice ? 2.0f : 1.0f) * x[i] + (z ? z[i] : 0.0f);
}}
"""


def add(tools: Toolchain, folder: Path, args: str, out: str = "torch.empty_like(x)") -> Entry:
    source = ADD.format(out=out, args=args).replace("return y, k", "return y, n_given")
    source = "// assay: let n_given = x.numel()\n" + source
    return load(source, ".cpp", ("x", "z"), tools, folder)


def test_optional_pointer_and_several_results(tools: Toolchain, tmp_path: Path) -> None:
    entry = add(tools, tmp_path, "x, z, y, n_given, True")
    x, z = torch.randn(10), torch.randn(10)
    y, n = entry([x, z])
    assert n == 10 and torch.allclose(y, 2 * x + z)
    y, _ = entry([x, None])
    assert torch.equal(y, 2 * x)


@pytest.mark.parametrize(
    ("args", "out", "error", "message"),
    [
        ("x, z, y, 2**31, True", "torch.empty_like(x)", OverflowError, "2147483648 does not fit"),
        ("x, z, y, 2.5, True", "torch.empty_like(x)", TypeError, "2.5 is not a whole number"),
        ("x, z, y, x, True", "torch.empty_like(x)", TypeError, "a number is needed"),
        ("3, z, y, 1, True", "torch.empty_like(x)", TypeError, "a tensor is needed, not a int"),
        ("wx, z, y, 1, True", "torch.empty_like(x)", NameError, "wx.*known are x, z"),
        ("x, z, y, 1, True", "torch.empty(4, 6).t()", ValueError, "must be contiguous"),
        ("x, z, y[:, 1:], 1, True", "torch.empty(4, 6)", ValueError, "non-contiguous view of an `out`"),
        ("x, z, y, 1, True", "torch.empty(1, device='meta')", TypeError, "is on meta"),
    ],
)
def test_wrong_arguments_are_named(
    tools: Toolchain, tmp_path: Path, args: str, out: str, error: type[Exception], message: str
) -> None:
    entry = add(tools, tmp_path, args, out)
    with pytest.raises(error, match=message):
        entry([torch.ones(4), torch.ones(4)])


def test_traceback_points_at_the_directive(tools: Toolchain, tmp_path: Path) -> None:
    entry = add(tools, tmp_path, "x, z, y, 1 // 0, True")
    with pytest.raises(ZeroDivisionError) as caught:
        entry([torch.ones(4), torch.ones(4)])
    last = [frame for frame in caught.traceback if str(frame.path).endswith("candidate.cpp")]
    assert len(last) == 1 and last[0].lineno + 1 == 4


def test_arity_is_checked_when_loading(tools: Toolchain, tmp_path: Path) -> None:
    with pytest.raises(CandidateFailure, match="line 4: add takes 5 arguments, 3 given") as caught:
        add(tools, tmp_path, "x, z, y")
    assert "float* x" in caught.value.detail


def test_gnu_error(tools: Toolchain, tmp_path: Path) -> None:
    source = LAYER_NORM.replace("std::sqrt", "std::sqroot")
    with pytest.raises(CandidateFailure) as caught:
        compile_candidate(candidate_from_source(source, "c", ".cpp"), tools, tmp_path)
    failure = caught.value
    assert (failure.status, failure.code) == ("build_failed", "compile_error")
    number = next(i for i, line in enumerate(source.splitlines(), 1) if "sqroot" in line)
    assert "sqroot" in failure.message and f"line {number}: const double scale" in failure.detail
    assert len(failure.detail.splitlines()) <= 12


def test_extension_with_torch_headers(tools: Toolchain, tmp_path: Path) -> None:
    """The slowest build there is; torch/extension.h, which includes all of them, takes thrice as long."""
    entry = load(EXTENSION, ".cpp", ("x",), tools, tmp_path)
    weight = torch.randn(5)
    assert entry.load_state({"weight": weight}).loaded == ("weight",)
    x = torch.randn(3, 5)
    assert torch.equal(entry([x]), x * weight * 2.0)


def test_extension_without_binding_fails_at_once(tools: Toolchain, tmp_path: Path) -> None:
    source = EXTENSION.split("PYBIND11_MODULE")[0]
    with pytest.raises(CandidateFailure, match="PYBIND11_MODULE") as caught:
        compile_candidate(candidate_from_source(source, "c", ".cpp"), tools, tmp_path)
    assert caught.value.code == "no_binding" and not list(tmp_path.glob("*.so"))


def cubin_tools(tools: Toolchain, tool: str) -> Toolchain:
    """The toolchain with only one of the two CUDA compilers."""
    if getattr(tools, tool) is None:
        pytest.skip(f"no {tool} here")
    return replace(tools, nvrtc=None) if tool == "nvcc" else replace(tools, nvcc=None)


@pytest.mark.parametrize("tool", ["nvcc", "nvrtc"])
def test_cubin(tools: Toolchain, tmp_path: Path, tool: str) -> None:
    built = compile_candidate(candidate_from_source(CUDA, "c", ".cu"), cubin_tools(tools, tool), tmp_path)
    assert built.kind == "cubin" and Path(built.path).read_bytes()[:4] == b"\x7fELF"
    assert "registers" in built.log and built.seconds > 0


@pytest.mark.parametrize("tool", ["nvcc", "nvrtc"])
@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ("fmaxf(", "fmaxx(", 'identifier "fmaxx" is undefined', "correct the name"),
        (
            "if (i < n)",
            "__shared__ float s[99999]; s[i] = 1; __syncthreads(); y[1] = s[2];",
            "too much shared data",
            "dynamic",
        ),
        ("#include <cuda_fp16.h>", "#include <cutlass/cutlass.h>", "cutlass/cutlass.h", "CUTLASS"),
        ("#include <cuda_fp16.h>", "", "__half", "include <cuda_fp16.h>"),
    ],
)
def test_cuda_errors(
    tools: Toolchain, tmp_path: Path, tool: str, old: str, new: str, message: str, hint: str
) -> None:
    source = CUDA.replace(old, new)
    with pytest.raises(CandidateFailure) as caught:
        compile_candidate(candidate_from_source(source, "c", ".cu"), cubin_tools(tools, tool), tmp_path)
    assert message in caught.value.message and hint in caught.value.detail
    assert caught.value.code == "compile_error"


def test_host_code_goes_on_to_nvcc(tools: Toolchain, tmp_path: Path) -> None:
    if tools.nvrtc is None or tools.nvcc is None:
        pytest.skip("needs both NVRTC and nvcc")
    source = "#include <vector>\nvoid host(std::vector<int>& v) { v.clear(); }\n" + CUDA
    built = compile_candidate(candidate_from_source(source, "c", ".cu"), tools, tmp_path)
    assert built.kind == "cubin"


def test_cubin_without_a_driver_is_a_user_error(tools: Toolchain, tmp_path: Path) -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        pytest.skip("this machine has a driver")
    path = tmp_path / "candidate.cubin"
    path.write_bytes(b"\x7fELF")
    with pytest.raises(UserError, match="NVIDIA driver"):
        load_entry(candidate_from_source(CUDA, "c", ".cu"), str(path), ("x",), {}, tmp_path)


def test_a_wrong_command_is_our_fault(tools: Toolchain, tmp_path: Path) -> None:
    wrong = replace(cubin_tools(tools, "nvcc"), cuda_arch="sm_13")
    with pytest.raises(JudgeFault, match="refused its command"):
        compile_candidate(candidate_from_source(CUDA, "c", ".cu"), wrong, tmp_path)


def test_missing_tools_and_wrong_use(tools: Toolchain, tmp_path: Path) -> None:
    cuda = candidate_from_source(CUDA, "c", ".cu")
    with pytest.raises(UserError, match="nvidia-cuda-nvrtc"):
        compile_candidate(cuda, replace(tools, nvcc=None, nvrtc=None), tmp_path)
    with pytest.raises(UserError, match="sm_90"):
        compile_candidate(cuda, replace(tools, cuda_arch=None), tmp_path)
    with pytest.raises(JudgeFault):
        compile_candidate(candidate_from_source("def forward(x): return x", "c", ".py"), tools, tmp_path)
    with pytest.raises(JudgeFault):
        load_entry(cuda, None, ("x",), {}, tmp_path)
