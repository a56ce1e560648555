"""Norms, softmax, cross entropy: interpreted on a CPU against their references, and compiled for Hopper.

Run as a program, this file is the interpreted half: it prints, for each kernel and each check, what went
wrong. Not covered here: bfloat16 values (the interpreter's are not those of a GPU), speed, and tensors of
more than 2^31 elements.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import triton
from interpreting import interpreted
from triton.compiler import ASTSource
from triton.runtime import interpreter

from assay.problems.layouts import lay_out
from assay.tiles.gate import HOPPER, assembled
from assay.tiles.kernel import Unsupported
from assay.tiles.kernels import cross_entropy, layer_norm, rms_norm, softmax
from assay.tiles.rows import stages as stages_of
from assay.tiles.rows import tile

MODULES = {"rms_norm": rms_norm, "layer_norm": layer_norm, "softmax": softmax, "cross_entropy": cross_entropy}
SOURCES = Path(rms_norm.__file__).parents[3]
TOLERANCES = {
    torch.float32: {"rtol": 1e-4, "atol": 2e-5},
    torch.float16: {"rtol": 2e-3, "atol": 2e-3},
}
SIZES = ("columns", "x_stride", "y_stride", "dy_stride", "programs")
NARROW = {cross_entropy.held_forward_kernel: 2, cross_entropy.long_forward_kernel: 3}
LAYOUTS = ("strided", "offset", "transposed", "sliced")
Check = tuple[str, Callable[[], None]]


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, str]]:
    return interpreted(__file__)


def test_rms_norm_is_right(found: dict[str, dict[str, str]]) -> None:
    _all_right(found["rms_norm"], least=28)


def test_layer_norm_is_right(found: dict[str, dict[str, str]]) -> None:
    _all_right(found["layer_norm"], least=28)


def test_softmax_is_right(found: dict[str, dict[str, str]]) -> None:
    _all_right(found["softmax"], least=24)


def test_cross_entropy_is_right(found: dict[str, dict[str, str]]) -> None:
    _all_right(found["cross_entropy"], least=46)


def _all_right(told: dict[str, str], least: int) -> None:
    assert len(told) >= least, sorted(told)
    assert {name: wrong for name, wrong in told.items() if wrong} == {}


@pytest.mark.parametrize("name", MODULES)
def test_on_a_cpu_the_reference_answers_and_has_a_gradient(name):
    module = MODULES[name]
    args = _leaves(module.inputs(rows=5, columns=12, dtype=torch.float32, device="cpu"))
    found = module.ENTRY.run(*args)
    assert torch.equal(found, module.reference(*args))
    found.sum().backward()
    assert args[0].grad is not None


@pytest.mark.parametrize("name", MODULES)
def test_cost_counts_the_bytes_of_inputs_and_outputs(name):
    module = MODULES[name]
    sizes = {"rows": 64, "columns": 100}
    args = module.inputs(**sizes, dtype=torch.float16, device="cpu")
    outputs = 0 if name == "cross_entropy" else 64 * 100 * 2
    of_rows = 64 * 8 if name == "layer_norm" else 0
    taken = sum(arg.numel() * arg.element_size() for arg in args)
    assert module.cost(**sizes, dtype=torch.float16).size_bytes == taken + outputs + of_rows


def _norm_forward(module: ModuleType, columns: int, **_: Any) -> tuple[Any, dict[str, Any], int]:
    high, wide, warps = tile(columns, 32)
    return module.forward_kernel, {"UNIT": 8, "ROWS": high, "COLUMNS": wide}, warps


def _norm_backward(module: ModuleType, columns: int, copied: int) -> tuple[Any, dict[str, Any], int]:
    high, wide, warps = tile(columns, 16)
    stages = stages_of(copied * high * wide * 2)
    return module.backward_kernel, {"UNIT": 8, "ROWS": high, "COLUMNS": wide, "STAGES": stages}, warps


def _compiled_cases() -> Iterator[Any]:
    for module in (rms_norm, layer_norm):
        for columns in (128, 768, 8192):
            name = f"{module.__name__.rpartition('.')[2]}-{columns}"
            yield pytest.param(*_norm_forward(module, columns), id=f"{name}-forward")
            yield pytest.param(*_norm_backward(module, columns, copied=3), id=f"{name}-backward")
    for columns in (128, 4096, 32_768):
        kernel, constants, warps = _norm_forward(softmax, columns)
        yield pytest.param(kernel, constants, warps, id=f"softmax-{columns}-forward")
    high, wide, warps = tile(softmax.BACKWARD_COLUMNS, 16)
    held = {"UNIT": 8, "ROWS": high, "COLUMNS": wide}
    yield pytest.param(softmax.backward_kernel, held, warps, id="softmax-backward")
    lanes = {"DEPTH": softmax.LONG_DEPTH, "LANES": softmax.LONG_LANES}
    yield pytest.param(softmax.long_forward_kernel, lanes, softmax.LONG_WARPS, id="softmax-long-forward")
    wide = {"COLUMNS": 2 * softmax.LONG_LANES}
    yield pytest.param(softmax.long_backward_kernel, wide, softmax.LONG_WARPS, id="softmax-long-backward")
    for columns, is_mean in ((64, False), (1000, True), (8192, True)):
        depth, high, lanes = cross_entropy.held_tile(columns, 8)
        held = {"IS_MEAN": is_mean, "UNIT": 8, "DEPTH": depth, "ROWS": high, "LANES": lanes}
        name = f"cross_entropy-{columns}-forward"
        yield pytest.param(cross_entropy.held_forward_kernel, held, cross_entropy.HELD_WARPS, id=name)
    for warps, is_mean in ((2, True), (4, False)):
        depth = cross_entropy.STEP_ELEMENTS // 8
        steps = {"IS_MEAN": is_mean, "UNIT": 8, "DEPTH": depth, "LANES": 32 * warps}
        name = f"cross_entropy-long-forward-{warps}"
        yield pytest.param(cross_entropy.long_forward_kernel, steps, warps, id=name)
    parts = {"PARTS": cross_entropy.MEAN_PARTS}
    yield pytest.param(cross_entropy.mean_kernel, parts, cross_entropy.MEAN_WARPS, id="cross_entropy-mean")
    wide = {"UNIT": 8, "ROWS": 1, "COLUMNS": 4096}
    yield pytest.param(cross_entropy.backward_kernel, wide, 4, id="cross_entropy-backward")


@pytest.mark.parametrize(("kernel", "constants", "warps"), tuple(_compiled_cases()))
def test_compiles_for_hopper_with_wide_copies_and_no_spills(kernel, constants, warps):
    names = kernel.arg_names
    signature = {name: _type_of(name, constants) for name in names}
    values = {(names.index(name),): value for name, value in constants.items()}
    # What a launch finds out by itself: of pointers, and of sizes where those have to be multiples of 16.
    is_told = "UNIT" not in constants
    known = [k for k, n in enumerate(names) if n.endswith("_ptr") or (is_told and n in SIZES)]
    aligned = {(k,): [["tt.divisibility", 16]] for k in known}
    source = ASTSource(kernel, signature, values, aligned)
    made = triton.compile(source, target=HOPPER, options={"num_warps": warps})
    text = made.asm["ptx"]
    assert re.findall(r"(\d+) bytes spill stores", assembled(text)) == ["0"]
    assert made.metadata.shared <= 113_000, "two programs must fit on a processor"
    assert re.search(r"ld\.global\S*\.v4\.b32|cp\.async\.cg\.shared\.global \S+ \S+ 0x10", text)
    # One element at a time: the logit of a row's target, where a long row begins and ends, and losses.
    narrow = re.findall(r"(?:ld|st)\.global\S*\.b16", text)
    assert len(narrow) <= NARROW.get(kernel, 0)


def _type_of(name: str, constants: dict[str, Any]) -> str:
    if name in constants:
        return "constexpr"
    if name == "target_ptr":
        return "*i64"
    sums = ("mean", "rstd", "dweight", "dbias", "parts", "counted", "logsum", "dloss")
    if name.endswith("_ptr"):
        is_part = name == "out_ptr" and constants.get("IS_MEAN")
        return "*fp32" if is_part or name.removesuffix("_ptr") in sums else "*bf16"
    return "fp32" if name == "eps" else "i32"


def _leaves(args: tuple[Any, ...]) -> list[Any]:
    """The same values, each to be differentiated by."""
    return [arg.detach().clone().requires_grad_() if arg.is_floating_point() else arg for arg in args]


def _agree(
    module: ModuleType,
    args: tuple[Any, ...],
    *,
    used: tuple[int, ...] = (0, 1),
    gradient: str = "strided",
    **options: Any,
) -> None:
    """Results and gradients are the reference's.

    Args:
        used: of several results, those that have a gradient.
        gradient: how the gradients of the results lie in memory.
    """
    tolerance = TOLERANCES[args[0].dtype]
    # Not cloned: the layout would be lost.
    mine = [arg.detach().requires_grad_() if arg.is_floating_point() else arg for arg in args]
    theirs = _leaves(args)
    found, wanted = (
        result if isinstance(result, tuple) else (result,)
        for result in (module.ENTRY.run(*mine, **options), module.reference(*theirs, **options))
    )
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True, **tolerance)
    gradients = [lay_out(torch.randn(w.shape).to(w.dtype), gradient) for w in wanted]
    for results in (found, wanted):
        torch.autograd.backward(
            [r for k, r in enumerate(results) if k in used], [g for k, g in enumerate(gradients) if k in used]
        )
    for one, other in zip(mine, theirs, strict=True):
        if one.is_floating_point():
            torch.testing.assert_close(one.grad, other.grad, equal_nan=True, **tolerance)


def _refuses(run: Callable[..., Any], word: str, *args: Any, **options: Any) -> None:
    try:
        run(*args, **options)
    except Unsupported as told:
        assert word in str(told), told
    else:
        raise AssertionError("was not refused")


def _compiles(module: ModuleType, args: list[Any]) -> None:
    """In one graph, with gradients."""

    def first(*args: Any) -> torch.Tensor:
        found = module.ENTRY.run(*args)
        return found[0] if isinstance(found, tuple) else found

    first(*args).square().sum().backward()
    wanted = [arg.grad for arg in args]
    again = _leaves(tuple(args))
    torch.compile(first, fullgraph=True, backend="aot_eager")(*again).square().sum().backward()
    torch.testing.assert_close([arg.grad for arg in again], wanted)


def _common_checks(module: ModuleType) -> Iterator[Check]:
    for dtype in TOLERANCES:
        for sizes in module.ENTRY.cases:
            args = module.inputs(**sizes, dtype=dtype, device="cpu")
            yield f"{dtype} {dict(sizes)}", lambda args=args: _agree(module, args)
    made = module.inputs(rows=6, columns=40, dtype=torch.float32, device="cpu")
    for layout in LAYOUTS:
        args = tuple(lay_out(arg, layout) for arg in made)
        yield f"{layout} layout", lambda args=args: _agree(module, args)
    yield "rows of the gradient far apart", lambda: _agree(module, made, gradient="sliced")
    spread = (made[0][:1].expand(6, 40), *made[1:])
    yield "the same row again and again", lambda: _agree(module, spread)
    for rows, columns in ((0, 40), (0, 0)):
        args = module.inputs(rows=rows, columns=max(columns, 1), dtype=torch.float32, device="cpu")
        if columns == 0:
            args = tuple(arg[..., :0] for arg in args)
        yield f"empty: {rows} rows of {columns}", lambda args=args: _agree(module, args)
    run = module.ENTRY.run
    yield (
        "float64",
        lambda: _refuses(run, "float64", *(a.double() if a.is_floating_point() else a for a in made)),
    )
    # No memory is behind these elements.
    long = torch.zeros(1).expand(1, 2**31)
    short = [torch.zeros(1).expand(2**31) for _ in made[1:]]
    if module is cross_entropy:
        short = [torch.zeros(1, dtype=torch.int64)]
    tall = torch.zeros(1).expand(2**31, 1)
    few = [torch.zeros(2**31 if module is cross_entropy else 1, device="meta").to(a.dtype) for a in made[1:]]
    yield "too many rows", lambda: _refuses(run, "too many rows", tall, *few)
    yield "too many columns", lambda: _refuses(run, "shape", long, *short)


def _norm_checks(module: ModuleType) -> Iterator[Check]:
    yield from _common_checks(module)
    made = module.inputs(rows=6, columns=40, residual=True, dtype=torch.float32, device="cpu")
    for layout in LAYOUTS:
        args = tuple(lay_out(arg, layout) for arg in made)
        yield f"{layout} layout with a residual", lambda args=args: _agree(module, args)
    yield "rows of both gradients far apart", lambda: _agree(module, made, gradient="sliced")
    apart = (lay_out(made[0], "sliced"), *made[1:])
    yield "rows of x alone far apart", lambda: _agree(module, apart)
    yield "only the norm is used", lambda: _agree(module, made, used=(0,))
    yield "only the sum is used", lambda: _agree(module, made, used=(1,))
    yield "another eps", lambda: _agree(module, made, eps=0.5)
    cube = tuple(arg.view(2, 3, 40) if arg.ndim == 2 else arg for arg in made)
    yield "three axes", lambda: _agree(module, cube)
    flat = tuple(arg[0] if arg.ndim == 2 else arg for arg in made)
    yield "one axis", lambda: _agree(module, flat)
    run, x, weight = module.ENTRY.run, made[0], made[1:-1]
    yield "a weight of half", lambda: _refuses(run, "types differ", x, *(w.half() for w in weight))
    yield "a short weight", lambda: _refuses(run, "per column", x, *(w[:-1] for w in weight))
    yield "a short residual", lambda: _refuses(run, "residual", x, *weight, x[:-1])
    values = _leaves((x, *weight))
    residual = x.clone().requires_grad_()
    eps = 1e-5
    yield "op without a residual", lambda: torch.library.opcheck(module._op.overload, (*values, None, eps))
    yield "op with a residual", lambda: torch.library.opcheck(module._op.overload, (*values, residual, eps))
    yield "torch.compile", lambda: _compiles(module, _leaves(made))


def _softmax_checks() -> Iterator[Check]:
    yield from _common_checks(softmax)
    inf = float("inf")
    for columns in (100, 40_000):
        x = torch.randn(7, columns)
        x[0, 3:90] = -inf
        x[1] = -inf
        x[2, 7] = float("nan")
        x[3] *= 1e4
        x[4, columns // 2] = inf
        x[5, : columns - 9] = torch.finfo(torch.float32).min
        x[6] = torch.finfo(torch.float32).min
        yield f"odd values in {columns} columns", lambda x=x: _agree(softmax, (x,))
        # Whole lanes are without a finite value until the last step.
        late = torch.full((1, columns), -inf)
        late[0, -1] = 3.0
        yield f"only the last of {columns} columns counts", lambda late=late: _agree(softmax, (late,))
    apart = lay_out(torch.randn(2, 40_000), "sliced")
    yield "long rows far apart", lambda: _agree(softmax, (apart,), gradient="sliced")
    yield "three axes", lambda: _agree(softmax, (torch.randn(2, 3, 50),))
    yield "one axis", lambda: _agree(softmax, (torch.randn(50),))
    yield "no axis", lambda: _refuses(softmax.softmax, "no axis", torch.tensor(1.0))
    yield "op", lambda: torch.library.opcheck(softmax._op.overload, (torch.randn(3, 20).requires_grad_(),))
    yield "torch.compile", lambda: _compiles(softmax, [torch.randn(3, 20).requires_grad_()])


def _bad_target() -> None:
    logits = torch.randn(4, 10).requires_grad_()
    losses = cross_entropy.cross_entropy(logits, torch.tensor([0, 10, -1, 9]), reduction="none")
    assert losses.isnan().tolist() == [False, True, True, False]
    assert cross_entropy.cross_entropy(logits, torch.tensor([0, 10, -1, 9])).isnan()
    losses.sum().backward()
    assert logits.grad.isnan().all(1).tolist() == [False, True, True, False]
    assert logits.grad.isnan().any(1).tolist() == [False, True, True, False]


def _begins_anywhere(dtype: torch.dtype, lead: int) -> None:
    """Long rows, from their whole vectors and what is around those, which decides here."""
    columns = cross_entropy.HELD_COLUMNS + 3
    around = torch.full((lead + 3 * columns + 12 + 5,), float("nan"), dtype=dtype)
    logits = around[lead:].as_strided((3, columns), (columns + 6, 1))
    logits.copy_(torch.randn(3, columns))
    logits[0, 0], logits[0, -1], logits[1, 2], logits[1, -2] = 40.0, 41.0, 42.0, 41.0
    logits[2, 3:-3] = -float("inf")
    args = logits, torch.tensor([0, columns - 1, 1])
    for reduction in ("mean", "none"):
        _agree(cross_entropy, args, reduction=reduction)
    size, step, begin = dtype.itemsize, columns + 6, logits.data_ptr()
    load = interpreter._interpreter.load

    def inside(places: np.ndarray, mask: np.ndarray, *rest: Any) -> Any:
        """Of this memory, only what is in a row may be read."""
        at = places[mask].astype(np.int64) - begin
        near = at[(at >= -size * lead) & (at < size * (around.numel() - lead))]
        assert ((near >= 0) & (near < 3 * step * size) & (near % (step * size) < columns * size)).all()
        return load(places, mask, *rest)

    with mock.patch.object(interpreter._interpreter, "load", inside):
        cross_entropy.cross_entropy(*args)


def _mean_of_many_programs() -> None:
    args = cross_entropy.inputs(rows=5 * cross_entropy.MOST_ROWS + 1, columns=3, device="cpu")
    with mock.patch.object(cross_entropy, "MEAN_PARTS", 2):
        _agree(cross_entropy, (args[0].float(), args[1]))


def _no_second_derivative() -> None:
    logits, targets = torch.randn(3, 5, requires_grad=True), torch.tensor([0, 1, 2])
    loss = cross_entropy.cross_entropy(logits, targets)
    (found,) = torch.autograd.grad(loss, logits, create_graph=True)
    with pytest.raises(RuntimeError, match="has no backward"):
        found.sum().backward()


def _cross_entropy_checks() -> Iterator[Check]:
    yield from _common_checks(cross_entropy)
    for dtype in TOLERANCES:
        for lead in (0, 1, 3, 7):
            yield f"{dtype} rows from {lead} on", lambda d=dtype, k=lead: _begins_anywhere(d, k)
    ragged = cross_entropy.RAGGED_COLUMNS
    for columns in (64, 256, ragged - 1, ragged + 1, cross_entropy.HELD_COLUMNS):
        args = cross_entropy.inputs(rows=9, columns=columns, dtype=torch.float16, device="cpu")
        yield f"{columns} columns", lambda args=args: _agree(cross_entropy, args)
    yield "a mean of many programs", _mean_of_many_programs
    yield "second derivatives", _no_second_derivative
    for sizes in cross_entropy.ENTRY.cases:
        args = cross_entropy.inputs(**sizes, dtype=torch.float32, device="cpu")
        yield f"each row of {dict(sizes)}", lambda args=args: _agree(cross_entropy, args, reduction="none")
    logits, targets = cross_entropy.inputs(rows=12, columns=50, dtype=torch.float32, device="cpu")
    none = torch.full_like(targets, -100)
    yield "all are ignored", lambda: _agree(cross_entropy, (logits, none))
    kept = targets.clamp(min=0)
    yield "class 3 is ignored", lambda: _agree(cross_entropy, (logits, kept % 5), ignore_index=3)
    far = logits.clone()
    far[:, ::2] = -float("inf")
    far[0] *= 1e3
    far[1, :40] = torch.finfo(torch.float32).min
    yield "classes that cannot be", lambda: _agree(cross_entropy, (far, kept % 5 * 2 + 41))
    yield "targets that are no class", _bad_target
    run = cross_entropy.cross_entropy
    yield "int32 targets", lambda: _refuses(run, "int64", logits, targets.int())
    yield "targets of another length", lambda: _refuses(run, "(rows,)", logits, targets[1:])
    yield "logits of three axes", lambda: _refuses(run, "(rows, classes)", logits[None], targets)
    yield "sum", lambda: _refuses(run, "mean or none", logits, targets, reduction="sum")
    leaf = logits.clone().requires_grad_()
    for is_mean in (True, False):
        args = (leaf, targets, -100, is_mean)
        yield f"op {is_mean}", lambda args=args: torch.library.opcheck(cross_entropy._op.overload, args)
    again = logits.clone().requires_grad_()
    yield "torch.compile", lambda: _compiles(cross_entropy, [again, targets])


def _what_is_wrong(check: Callable[[], None]) -> str:
    try:
        check()
    except Exception:
        return traceback.format_exc(limit=-4)
    return ""


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    # Memory that a kernel leaves unwritten is then NaN.
    torch.use_deterministic_algorithms(True)
    checks = {
        "rms_norm": _norm_checks(rms_norm),
        "layer_norm": _norm_checks(layer_norm),
        "softmax": _softmax_checks(),
        "cross_entropy": _cross_entropy_checks(),
    }
    told = {
        kernel: {name: _what_is_wrong(check) for name, check in found} for kernel, found in checks.items()
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
