"""Operators of exported modules are replaced by tile kernels where these compute the same, nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import export
from torch.nn import functional as F

from assay.lift import tile_templates
from assay.lift.capture import INPUT, Argument, Capture
from assay.lift.reading import read
from assay.lift.record import CannotLift
from assay.lift.tile_templates import with_tiles
from assay.lift.triton_launch import triton_imports
from assay.tiles import operators

BOTH = "products,rows"


class Of(nn.Module):
    """A module that computes a function of its inputs and of two weights."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(half(24, 16))
        self.bias = nn.Parameter(half(24))
        self.filter = nn.Parameter(half(8, 8, 3, 3))

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).half() / 4


X, RESIDUAL, IMAGES = half(5, 16), half(5, 24), half(2, 8, 6, 6)
HEADS = half(2, 2, 8, 64)
FIT = {
    "a product": ("gemm", lambda m, x: x @ m.weight.T, (X,)),
    "a product of more axes": ("gemm", lambda m, x: torch.matmul(x, m.weight.T), (half(3, 5, 16),)),
    "a layer": ("gemm", lambda m, x: F.linear(x, m.weight, m.bias), (X,)),
    "a layer without a bias": ("gemm", lambda m, x: F.linear(x, m.weight), (X,)),
    "relu": ("gemm", lambda m, x: torch.relu(F.linear(x, m.weight, m.bias)), (X,)),
    "gelu": ("gemm", lambda m, x: F.gelu(F.linear(x, m.weight, m.bias), approximate="tanh"), (X,)),
    "exact gelu, which stays": ("gemm", lambda m, x: F.gelu(F.linear(x, m.weight, m.bias)), (X,)),
    "silu and a residual": ("gemm", lambda m, x, r: r + F.silu(F.linear(x, m.weight)), (X, RESIDUAL)),
    "what is added is shared": ("gemm", lambda m, x: F.linear(x, m.weight) + m.bias, (X,)),
    "twice itself": ("gemm", lambda m, x: (y := F.linear(x, m.weight)) + y, (X,)),
    "used twice": ("gemm", lambda m, x: (y := F.linear(x, m.weight)).relu() * y, (X,)),
    "attention": ("attention", lambda m, q: F.scaled_dot_product_attention(q, q, q), (HEADS,)),
    "causal": (
        "attention",
        lambda m, q: F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.5),
        (HEADS,),
    ),
    "a convolution": ("conv2d", lambda m, x: F.conv2d(x, m.filter, stride=2, padding=1), (IMAGES,)),
    "with relu": ("conv2d", lambda m, x: F.relu(F.conv2d(x, m.filter)), (IMAGES,)),
    "with relu and a pool": (
        "conv2d_relu_maxpool",
        lambda m, x: F.max_pool2d(F.relu(F.conv2d(x, m.filter, padding=1)), 2),
        (IMAGES,),
    ),
    "with another pool": ("conv2d", lambda m, x: F.max_pool2d(F.relu(F.conv2d(x, m.filter)), 3), (IMAGES,)),
    "softmax": ("softmax", lambda m, x: x.softmax(-1), (X,)),
    "layer norm": ("layer_norm", lambda m, x: F.layer_norm(x, (24,), m.bias, m.bias), (RESIDUAL,)),
    "rms norm": ("rms_norm", lambda m, x: F.rms_norm(x, (24,), m.bias, 1e-5), (RESIDUAL,)),
    "cross entropy": ("cross_entropy", lambda m, x, t: F.cross_entropy(x, t), (X, torch.arange(5))),
}
LEFT = {
    "a product in float32": (lambda m, x: x @ m.weight.T.float(), (X.float(),)),
    "rows of an odd length": (lambda m, x: x @ m.weight.T[:, :23], (X,)),
    "batched": (torch.bmm, None),
    "a vector": (lambda m, x: x @ m.weight.T, (half(16),)),
    "a mask": (
        lambda m, q: F.scaled_dot_product_attention(q, q, q, torch.ones(8, 8, dtype=torch.bool).tril()),
        (HEADS,),
    ),
    "causal, more keys": (
        lambda m, q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True),
        (HEADS, half(2, 2, 12, 64)),
    ),
    "heads of another size": (lambda m, q: F.scaled_dot_product_attention(q, q, q), (half(2, 2, 8, 40),)),
    "groups": (lambda m, x: F.conv2d(x, m.filter[:, :4], groups=2), (IMAGES,)),
    "columns": (lambda m, x: x.softmax(0), (X,)),
    "another type": (lambda m, x: x.softmax(-1, dtype=torch.float32), (X,)),
    "a norm without weights": (lambda m, x: F.layer_norm(x, (24,)), (RESIDUAL,)),
    "smoothed": (lambda m, x, t: F.cross_entropy(x, t, label_smoothing=0.1), (X, torch.arange(5))),
    "a sum of losses": (lambda m, x, t: F.cross_entropy(x, t, reduction="sum"), (X, torch.arange(5))),
}


def recorded(monkeypatch: pytest.MonkeyPatch, called: list[str]) -> None:
    """Notes which kernels the templates call."""
    names = ("attention", "conv2d", "conv2d_relu_maxpool", "cross_entropy", "gemm", "layer_norm", "rms_norm")
    for name in (*names, "softmax"):
        kernel = getattr(tile_templates, name)

        def noted(*arguments: Any, of: Any = kernel, by: str = name) -> Any:
            called.append(by)
            return of(*arguments)

        monkeypatch.setattr(tile_templates, name, noted)


@pytest.mark.parametrize("name", FIT)
def test_a_kernel_that_fits_computes_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, function, inputs = FIT[name]
    called: list[str] = []
    recorded(monkeypatch, called)
    module = Of(function)
    changed = with_tiles(export(module, inputs, strict=False), inputs, BOTH)
    assert set(called) == {kernel}
    expected, got = module(*inputs), changed.module()(*inputs)
    torch.testing.assert_close(got, expected, rtol=4e-3, atol=4e-3)
    targets = [spec.target for spec in changed.graph_signature.input_specs if spec.target]
    assert set(targets) <= {"weight", "bias", "filter"}


@pytest.mark.parametrize("name", LEFT)
def test_what_no_kernel_computes_stays(name: str) -> None:
    function, inputs = LEFT[name]
    if inputs is None:
        inputs = (half(2, 8, 16), half(2, 16, 8))
        program = export(Of(lambda m, a, b: function(a, b)), inputs, strict=False)
    else:
        program = export(Of(function), inputs, strict=False)
    assert with_tiles(program, inputs, BOTH) is program


def test_rows_are_left_to_inductor_unless_asked_for() -> None:
    program = export(Of(lambda m, x: x.softmax(-1)), (X,), strict=False)
    assert with_tiles(program, (X,), "products") is program
    with pytest.raises(CannotLift, match="no templates are named planes"):
        with_tiles(program, (X,), "planes")


def test_a_kernel_that_refuses_is_told() -> None:
    mixed = Of(lambda m, x: F.layer_norm(x.float(), (24,), m.bias.float(), m.bias.float()).half())
    program = export(mixed, (RESIDUAL,), strict=False)
    assert with_tiles(program, (RESIDUAL,), BOTH) is not program
    wide = Of(lambda m, x: F.layer_norm(x.double(), (24,), m.bias.double(), m.bias.double()))
    with pytest.raises(CannotLift, match="a tile kernel refuses"):
        with_tiles(export(wide, (RESIDUAL,), strict=False), (RESIDUAL,), BOTH)


WRAPPER = """
def call(self, args):
    arg0_1, arg1_1 = args
    args.clear()
    assert_size_stride(arg0_1, (8, 16), (16, 1))
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        buf0 = torch.ops.assay.gemm.default(arg0_1, arg1_1, None, None, 'gelu')
        buf1 = buf0
        buf2 = torch.ops.assay.attention.default(buf1, buf1, buf1, True, 0.125)
        buf3 = buf2[0]
    return (buf3, )
"""


def test_generated_code_calls_them_as_operators() -> None:
    arguments = tuple(
        Argument(f"arg{k}_1", INPUT, name, "float16", ("16", "16"), ("16", "1"))
        for k, name in enumerate("ab")
    )
    capture = Capture("cuda", "tiles", "2", WRAPPER, ("a", "b"), arguments, {}, {}, None, {}, (), "tensor")
    lifted = read(capture)
    lines = [step.text for step in lifted.steps]
    assert lines[0] == "buf0 = operators.gemm(a, b, None, None, 'gelu')"
    assert lines[1] == "buf2 = operators.attention(buf0, buf0, buf0, True, 0.125)"
    assert "from assay.tiles import operators" in triton_imports(lifted)


def test_operators_are_found_by_name() -> None:
    assert operators.gemm.name == "assay::gemm"
    with pytest.raises(AttributeError, match="no_such_kernel"):
        operators.no_such_kernel  # noqa: B018
