"""Convolutions: interpreted on a CPU against their references, and compiled for Hopper.

Run as a program, this file is the interpreted half: it prints, for each kernel and each check, what went
wrong. Not covered here: bfloat16 values (the interpreter's products of these are not those of a GPU), speed,
and tensors of more than 2^31 elements.
"""

from __future__ import annotations

import functools
import json
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import triton
from interpreting import interpreted
from triton.compiler import ASTSource

from assay.problems.layouts import lay_out
from assay.tiles.gate import HOPPER, MOST_SHARED_BYTES, assembled
from assay.tiles.kernel import Unsupported
from assay.tiles.kernels import conv2d, conv2d_relu_maxpool, long_convolution

IMAGES = {"conv2d": conv2d, "conv2d_relu_maxpool": conv2d_relu_maxpool}
MODULES = IMAGES | {"long_convolution": long_convolution}
SOURCES = Path(conv2d.__file__).parents[3]
TOLERANCES = {
    torch.float32: {"rtol": 1e-5, "atol": 1e-5},
    torch.float16: {"rtol": 2e-3, "atol": 1e-3},
}
SUMMED = {"rtol": 2e-3, "atol": 1e-5}
"""Small values beside large ones are as exact: Fourier transforms in half precision would not do."""
LAYOUTS = ("strided", "offset", "transposed", "sliced")
ODD_GEOMETRY = {"stride": (2, 1), "padding": (0, 3), "dilation": (1, 2)}
Check = tuple[str, Callable[[], None]]


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, str]]:
    return interpreted(__file__)


def test_conv2d_is_right(found: dict[str, dict[str, str]]) -> None:
    _all_right(found["conv2d"], least=26)


def test_conv2d_relu_maxpool_is_right(found: dict[str, dict[str, str]]) -> None:
    _all_right(found["conv2d_relu_maxpool"], least=24)


def test_long_convolution_is_right(found: dict[str, dict[str, str]]) -> None:
    _all_right(found["long_convolution"], least=20)


def _all_right(told: dict[str, str], least: int) -> None:
    assert len(told) >= least, sorted(told)
    assert {name: wrong for name, wrong in told.items() if wrong} == {}


@pytest.mark.parametrize("name", MODULES)
def test_on_a_cpu_the_reference_answers_and_has_a_gradient(name):
    module = MODULES[name]
    args = module.inputs(**module.ENTRY.cases[1], dtype=torch.float32, device="cpu")
    leaves = tuple(arg.requires_grad_() if isinstance(arg, torch.Tensor) else arg for arg in args)
    found = module.ENTRY.run(*leaves)
    assert torch.equal(found, module.reference(*leaves))
    found.sum().backward()
    assert leaves[0].grad is not None and leaves[1].grad is not None


@pytest.mark.parametrize("name", MODULES)
def test_cost_counts_the_bytes_of_inputs_and_outputs(name):
    module = MODULES[name]
    for sizes in module.ENTRY.cases:
        args = module.inputs(**sizes, dtype=torch.float16, device="cpu")
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        moved = sum(tensor.nbytes for tensor in (*tensors, module.reference(*args)))
        cost = module.cost(**sizes, dtype=torch.float16)
        assert cost.size_bytes == moved and cost.flops > 0


def test_a_convolution_costs_what_its_taps_cost():
    assert conv2d.cost(n=2, channels=3, side=8, outputs=5).flops == 2 * (2 * 5 * 64) * 27
    assert conv2d_relu_maxpool.cost(n=2, channels=3, side=9, outputs=5).flops == 2 * (2 * 5 * 64) * 27


def test_a_long_convolution_is_the_sum_that_it_says():
    u, k, gate = long_convolution.inputs(
        batch=2, heads=1, length=50, gated=True, dtype=torch.float32, device="cpu"
    )
    wanted = [sum(k[0, s] * u[:, 0, t - s] for s in range(t + 1)) * gate[:, 0, t] for t in range(50)]
    torch.testing.assert_close(long_convolution.long_convolution(u, k, gate)[:, 0], torch.stack(wanted, 1))


X, WEIGHT = torch.ones(2, 4, 8, 8), torch.ones(3, 4, 3, 3)


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((X.double(), WEIGHT.double()), "float64 is not supported"),
        ((X.half(), WEIGHT), "types differ"),
        ((X, WEIGHT, torch.ones(3).half()), "types differ"),
        ((X[0], WEIGHT), "use .N, C, H, W."),
        ((X, WEIGHT[:, :3]), "use .N, C, H, W."),
        ((X, WEIGHT[:, :, :0]), "use .N, C, H, W."),
        ((X, WEIGHT, torch.ones(4)), "3 output channels"),
        ((X, WEIGHT, None, 0), "from 1, 0 and 1 on"),
        ((X, WEIGHT, None, 1, (1, -1)), "from 1, 0 and 1 on"),
        ((X, WEIGHT, None, (1, 1, 1)), "one or two of each"),
        ((X, WEIGHT, None, 1, 0, 4), "does not fit"),
        ((X, WEIGHT.to("meta")), "different devices"),
        ((X[:1].to("meta").expand(2**24, -1, -1, -1), WEIGHT.to("meta"), None, 1, 1), "split"),
    ],
)
def test_images_that_are_not_taken(name, args, words):
    with pytest.raises(Unsupported, match=words):
        IMAGES[name].ENTRY.run(*args)


def test_a_convolution_without_a_square_cannot_be_pooled():
    with pytest.raises(Unsupported, match="no square of 2 x 2"):
        conv2d_relu_maxpool.conv2d_relu_maxpool(X[:, :, :3], WEIGHT)


U, K = torch.ones(2, 3, 1024), torch.ones(3, 1024)
SPECTRUM = long_convolution.transform(K)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((U.double(), K), "float64 is not supported"),
        ((U, K, U.half()), "types differ"),
        ((U[0], K), "use .batch, heads, L."),
        ((U, K[:, :-1]), "use .batch, heads, L."),
        ((U, K, U[:1]), "use equal shapes"),
        ((U[:, :2], K[:2], None, SPECTRUM), "use transform.k."),
        ((U[..., :100], K[:, :100], None, SPECTRUM), "no transform of length 100"),
        ((U, K, None, long_convolution.transform(K, torch.float32)), "use float16"),
        ((U, K.to("meta")), "different devices"),
    ],
)
def test_sequences_that_are_not_taken(args, words):
    with pytest.raises(Unsupported, match=words):
        long_convolution.long_convolution(*args)


ALIGNED = ("channels", "outputs", "x_n", "x_h", "x_w", "y_n", "y_pixel", "u_b", "u_h", "gate_b", "gate_h")
UNITS = ("stride_h", "stride_w", "pad_h", "pad_w", "dilation_h", "dilation_w", "x_c", "y_k")
SIXTEEN = [["tt.divisibility", 16]]


def _compiled_cases() -> Iterator[Any]:
    """Tiles from the highest to the lowest; and where every size is 1, which Triton makes a constant."""
    ones = (*UNITS, *ALIGNED, "positions", "plane", "columns", "height", "width", "taps")
    for name, module in IMAGES.items():
        for sizes in ((10**6, 256, 256), (10**6, 64, 64), (500, 512, 64), (10**6, 64, 3)):
            yield pytest.param(module, sizes, UNITS, id=f"{name}-{sizes}")
        yield pytest.param(module, (1, 1, 1), ones, id=f"{name}-ones")
    for length in long_convolution.LENGTHS:
        yield pytest.param(long_convolution, (length,), (), id=f"long_convolution-{length}")
    yield pytest.param(long_convolution, (1024,), ("batch", "heads"), id="long_convolution-ones")


def _constants(module: ModuleType, sizes: tuple[int, ...]) -> dict[str, Any]:
    if module is long_convolution:
        return module.constants(module.tile(64 if sizes[0] == 1024 else 16, 768, sizes[0]), sizes[0])
    return module.tile(*sizes, 2) | {"S": 3} | ({"RELU": True} if module is conv2d else {})


@pytest.mark.parametrize(("module", "sizes", "units"), tuple(_compiled_cases()))
def test_compiles_for_hopper_with_tensor_cores_and_no_spills(module, sizes, units):
    constants = _constants(module, sizes)
    is_wide = not constants.get("FLAT")
    warps = constants.pop("num_warps")
    kernel = module.forward_kernel
    constants |= dict.fromkeys((name for name in units if name in kernel.arg_names), 1)
    signature = {name: _type_of(name, constants) for name in kernel.arg_names}
    # What a launch finds out by itself where pointers and sizes are multiples of 16.
    aligned = {
        (k,): SIXTEEN
        for k, (name, kind) in enumerate(signature.items())
        if kind.startswith("*") or (is_wide and name in ALIGNED and kind != "constexpr")
    }
    source = ASTSource(kernel, signature, constants, aligned)
    made = triton.compile(source, target=HOPPER, options={"num_warps": warps})
    told = assembled(made.asm["ptx"])
    assert "serialized" not in told
    assert [int(n) for n in re.findall(r"(\d+) bytes spill", told)] == [0, 0]
    assert "wgmma.mma_async" in made.asm["ptx"] and made.metadata.shared <= MOST_SHARED_BYTES
    if module is not long_convolution:
        # The interpreter keeps NaN either way, so that it cannot tell.
        assert "max.NaN.f32" in made.asm["ptx"]
        assert is_wide == ("cp.async.cg.shared.global" in made.asm["ptx"])


def _type_of(name: str, constants: Mapping[str, Any]) -> str:
    if name in constants:
        return "constexpr"
    if not name.endswith("_ptr"):
        return "i32"
    return "*fp32" if name == "scale_ptr" else "*bf16"


def _image_checks(module: ModuleType) -> Iterator[Check]:
    run, reference = module.ENTRY.run, module.reference
    agree = functools.partial(_agree, run, reference)
    for dtype in TOLERANCES:
        for sizes in _image_cases(module):
            args = module.inputs(**sizes, dtype=dtype, device="cpu")
            yield f"{dtype} {sizes}", functools.partial(agree, *args)
        for channels, last in ((16, dtype == torch.float16), (5, dtype == torch.float32)):
            x, weight, bias = _images(channels, last, dtype)
            odd = functools.partial(agree, x, weight, bias, **ODD_GEOMETRY)
            yield f"{dtype} {channels} channels, {last=}, odd geometry", odd
    x, weight, bias = _images(16, True, torch.float16)
    yield "no bias", functools.partial(agree, x, weight)
    yield "formats differ", functools.partial(agree, x, weight.contiguous(), bias)
    for layout in LAYOUTS:
        laid = [lay_out(t, layout) for t in (x, weight, bias)]
        yield layout, functools.partial(agree, *laid, padding=1)
    yield "many tiles", functools.partial(_high_tiles, agree)
    yield "nan", functools.partial(_image_of_nan, run, reference, x, weight)
    yield "infinite", functools.partial(_infinite_sums, run, x, weight)
    yield "no images", functools.partial(agree, x[:0], weight, bias)
    yield "no outputs", functools.partial(_is_empty, run, x, weight[:0], bias[:0])
    yield "no backward", functools.partial(_no_backward, run, x, weight)
    extra = (False,) if module is conv2d else ()
    yield (
        "schema and shapes",
        functools.partial(_sound, module._op, x, weight, bias, [2, 1, 0, 3, 1, 2], *extra),
    )
    if module is conv2d:
        yield "relu", functools.partial(agree, x, weight, bias, relu=True)
        relu = functools.partial(run, relu=True)
        yield (
            "relu of nan",
            functools.partial(_image_of_nan, relu, functools.partial(reference, relu=True), x, weight),
        )


def _image_cases(module: ModuleType) -> Iterator[dict[str, Any]]:
    """The widest of them, tiles of several images and outputs, with a window of fewer taps."""
    for sizes in module.ENTRY.cases:
        is_wide = sizes["outputs"] > 130
        yield sizes | {"n": 2, "window": 2, "padding": 1} if is_wide else sizes


def _images(channels: int, last: bool, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    form = torch.channels_last if last else torch.contiguous_format
    shapes = (2, channels, 6, 7), (18, channels, 2, 3)
    x, weight = ((torch.randn(shape) / 4).to(dtype).contiguous(memory_format=form) for shape in shapes)
    return x, weight, torch.randn(18).to(dtype)


def _image_of_nan(run: Callable, reference: Callable, x: torch.Tensor, weight: torch.Tensor) -> None:
    """Not by the reference: torch's own convolution on a CPU makes some of it infinite."""
    spoilt = x.index_fill(0, torch.tensor([0]), torch.nan)
    y = run(spoilt, weight)
    assert y[0].isnan().all()
    torch.testing.assert_close(y[1:], reference(x, weight)[1:], **TOLERANCES[y.dtype])


def _infinite_sums(run: Callable, x: torch.Tensor, weight: torch.Tensor) -> None:
    """Of which some are -inf, and no number with a bias of inf; others are inf with it."""
    x, weight = x.abs() + 0.1, weight.abs() + 0.1
    x[0, :, 0, 0] = -torch.inf
    y = run(x, weight, torch.full_like(weight[:, 0, 0, 0], torch.inf))
    assert y[0, :, 0, 0].isnan().all() and y[1].isposinf().all()


def _high_tiles(agree: Callable[..., None]) -> None:
    """More than one of the highest tiles, as large batches get them."""
    wanted, conv2d.PROGRAMS_WANTED = conv2d.PROGRAMS_WANTED, 1
    try:
        assert conv2d.tile(600, 130, 16, 2)["BM"] == 256
        agree(torch.randn(2, 16, 26, 24).half(), torch.randn(130, 16, 1, 1).half())
    finally:
        conv2d.PROGRAMS_WANTED = wanted


def _sequence_checks() -> Iterator[Check]:
    module = long_convolution
    run = functools.partial(_agree, module.long_convolution, module.reference, is_summed=True)
    for sizes in module.ENTRY.cases:
        yield (
            f"half {sizes}",
            functools.partial(run, *module.inputs(**sizes, dtype=torch.float16, device="cpu")),
        )
        args = module.inputs(**sizes, dtype=torch.float32, device="cpu")
        yield f"float {sizes}", functools.partial(run, *args)
        if sizes["length"] in module.LENGTHS:
            # The public function leaves float32 to torch; here the matrices themselves must be exact.
            yield f"exact {sizes}", functools.partial(_agree, _exact, module.reference, *args)
    u, k, gate = module.inputs(batch=3, heads=2, length=1024, gated=True, dtype=torch.float16, device="cpu")
    for layout in LAYOUTS:
        yield layout, functools.partial(run, *(lay_out(t, layout) for t in (u, k, gate)))
    yield "layouts differ", functools.partial(run, u, k, lay_out(gate, "sliced"))
    yield "spectrum", functools.partial(run, u, k, gate, module.transform(k))
    yield "wide filter", functools.partial(run, u, k.float())
    yield "only the past", functools.partial(_only_the_past, u, k)
    yield "sizes", functools.partial(_each_by_its_size, u, k)
    yield "nan", functools.partial(_nan_stays, u, k)
    yield "zeros", functools.partial(run, torch.zeros_like(u), torch.zeros_like(k))
    for empty in (u[:0], u[..., :0]):
        yield (
            f"empty {tuple(empty.shape)}",
            functools.partial(_is_empty, module.long_convolution, empty, k[:, : empty.shape[2]]),
        )
    yield "no backward", functools.partial(_no_backward, module.long_convolution, u, k)
    yield "schema and shapes", functools.partial(_sound, module._op, u, *module.transform(k), gate)


def _exact(u: torch.Tensor, k: torch.Tensor, gate: torch.Tensor | None = None) -> torch.Tensor:
    return long_convolution._op(u, *long_convolution.transform(k, torch.float32), gate)


def _only_the_past(u: torch.Tensor, k: torch.Tensor) -> None:
    late = torch.zeros_like(u)
    late[..., 700:] = u[..., 700:]
    y = long_convolution.long_convolution(late, k)
    assert y[..., :700].abs().max() == 0 < y[..., 700:].abs().max()


def _each_by_its_size(u: torch.Tensor, k: torch.Tensor) -> None:
    """Sequences that share a program keep their own accuracy, and none overflows inside."""
    sizes = torch.tensor([3e4, 1e-3, 1.0])[:, None, None]
    loud = (u / u.abs().max() * sizes).half()
    for factor in (1.0, 1e-2):
        found = long_convolution.long_convolution(loud, k * factor).float()
        wanted = long_convolution.reference(loud.float(), (k * factor).float())
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=2e-3, atol=max(1e-5 * float(other.std()), 1e-7))


def _nan_stays(u: torch.Tensor, k: torch.Tensor) -> None:
    for value in (torch.nan, torch.inf):
        spoilt = u.clone()
        spoilt[0, 1, 5] = value
        y = long_convolution.long_convolution(spoilt, k)
        assert y[0, 1].isnan().all() and y[0, 0].isfinite().all() and y[1:].isfinite().all()


def _agree(run: Callable, reference: Callable, *args: Any, is_summed: bool = False, **options: Any) -> None:
    found, wanted = run(*args, **options), reference(*args, **options)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    assert found.numel() == 0 or found.ndim != 4 or found.stride() == wanted.stride()
    torch.testing.assert_close(found, wanted, **(SUMMED if is_summed else TOLERANCES[found.dtype]))


def _is_empty(run: Callable, *args: Any) -> None:
    y = run(*args)
    assert y.numel() == 0 and y.ndim == args[0].ndim and y.dtype == args[0].dtype


def _no_backward(run: Callable, x: torch.Tensor, weight: torch.Tensor) -> None:
    y = run(x.clone().requires_grad_(), weight)
    try:
        y.float().sum().backward()
    except RuntimeError as error:
        assert "has no backward" in str(error), error
    else:
        raise AssertionError("backward went through")


def _sound(op: Any, *args: Any) -> None:
    torch.library.opcheck(op.overload, args, test_utils=("test_schema", "test_faketensor"))


def _wrong(check: Callable[[], None]) -> str:
    try:
        check()
    except Exception:
        return traceback.format_exc(limit=-3)
    return ""


def main() -> None:
    torch.manual_seed(0)
    checks = {name: _image_checks(module) for name, module in IMAGES.items()}
    checks["long_convolution"] = _sequence_checks()
    told = {name: {title: _wrong(check) for title, check in listed} for name, listed in checks.items()}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
