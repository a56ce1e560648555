"""Linear attention and Mamba 2: interpreted on a CPU against their references, and compiled for Hopper.

Run as a program, this file is the interpreted half: it prints, for each kernel and each check, what went
wrong. Not covered here: bfloat16 values (the interpreter's products of them are wrong), speed, and tensors of
more than 2^31 elements.
"""

from __future__ import annotations

import json
import math
import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from interpreting import interpreted
from triton.compiler import ASTSource

from assay.problems.layouts import lay_out
from assay.tiles.gate import HOPPER, assembled
from assay.tiles.kernel import Kernel, Unsupported
from assay.tiles.kernels import linear_attention, mamba2

ENTRIES = {entry.name: entry for entry in (*linear_attention.ENTRIES, mamba2.ENTRY)}
SOURCES = Path(mamba2.__file__).parents[3]
TOLERANCES = {torch.float32: {"rtol": 1e-5, "atol": 2e-5}, torch.float16: {"rtol": 2e-3, "atol": 4e-3}}
FEW_BYTES = 32
LAYOUTS = ("strided", "offset", "transposed", "sliced", "mixed")
Check = tuple[str, Callable[[], None]]


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, str]]:
    return interpreted(__file__)


@pytest.mark.parametrize(("name", "least"), [("based", 28), ("hedgehog", 29), ("mamba2", 33)])
def test_is_right(found, name, least):
    told = found[name]
    assert len(told) >= least, sorted(told)
    assert {check: wrong for check, wrong in told.items() if wrong} == {}


@pytest.mark.parametrize("name", ENTRIES)
def test_on_a_cpu_the_reference_answers_and_has_a_gradient(name):
    entry = ENTRIES[name]
    args = [arg.requires_grad_() for arg in _small(entry, torch.float32)]
    found = entry.run(*args)
    assert torch.equal(found, entry.reference(*args))
    found.sum().backward()
    assert all(arg.grad is not None for arg in args)


@pytest.mark.parametrize("name", ENTRIES)
def test_cost_counts_the_bytes_of_inputs_and_outputs(name):
    entry = ENTRIES[name]
    sizes = entry.cases[2]
    args = entry.inputs(**sizes, dtype=torch.float16, device="cpu")
    given = sum(arg.numel() * arg.element_size() for arg in (*args, entry.reference(*args)))
    assert entry.cost(**sizes, dtype=torch.float16).size_bytes == given


def test_the_second_order_map_is_the_start_of_the_exponential():
    q, k, v = linear_attention.inputs(
        batch=1, heads=1, length=9, d=16, dv=16, dtype=torch.float32, device="cpu"
    )
    a = (0.1 * q) @ k.transpose(-1, -2) / 4
    wanted = (a.masked_fill(torch.ones(9, 9).triu(1).bool(), float("-inf"))).softmax(-1) @ v
    torch.testing.assert_close(linear_attention.based(0.1 * q, k, v), wanted, rtol=1e-2, atol=1e-3)


def _compiled_cases() -> Iterator[Any]:
    for name, d in (("based", 16), ("hedgehog", 64)):
        for normalise in (True, False):
            sizes = {"MAP": name, "NORMALISE": normalise, "D": d, **linear_attention._blocks(name, d, 64)}
            options = {word: sizes.pop(word) for word in ("num_warps", "num_stages")}
            label = f"{name}-{'normalised' if normalise else 'plain'}"
            yield pytest.param(linear_attention._segment_kernel, sizes, options, id=f"{label}-segments")
            unit = 1 if name == "based" else d
            sizes = {**sizes, "BLOCK": linear_attention.KEYS, "UNIT": unit, "EPSILON": 1e-6, "HAS_PAST": True}
            yield pytest.param(linear_attention._output_kernel, sizes, options, id=f"{label}-output")
    sizes = {"N": 128, "BP": 64, "CHUNK": mamba2.CHUNK}
    yield pytest.param(mamba2._segment_kernel, sizes, mamba2.SEGMENT_OPTIONS, id="mamba2-segments")
    sizes = {**sizes, "HAS_PAST": True, "HAS_D": True}
    yield pytest.param(mamba2._output_kernel, sizes, mamba2.OUTPUT_OPTIONS, id="mamba2-output")


@pytest.mark.parametrize(("kernel", "constants", "options"), tuple(_compiled_cases()))
def test_compiles_for_hopper_with_next_to_no_spills(kernel, constants, options):
    """A few values that a thread has no register for; on an H200 that is faster than a kernel of its own that
    adds up what comes before a segment."""
    names = kernel.arg_names
    signature = {name: _type_of(name, constants) for name in names}
    values = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, signature, values, _aligned(names, signature))
    made = triton.compile(source, target=HOPPER, options=dict(options))
    text = made.asm["ptx"]
    (spilled,) = re.findall(r"(\d+) bytes spill stores", assembled(text))
    assert int(spilled) <= FEW_BYTES
    per_processor = 8 // options.get("num_warps", 4)
    assert made.metadata.shared * per_processor <= 232_448, f"{per_processor} must fit on a multiprocessor"
    if "BLOCK" not in constants or "D" in constants:
        assert "wgmma.mma_async" in text, "products must be the tensor cores'"
        assert re.search(r"cp\.async\.cg\.shared\.global \[[^;]*0x10", text), "copies must run ahead"


def _type_of(name: str, constants: dict[str, Any]) -> str | tuple[str, ...]:
    if name in constants:
        return "constexpr"
    if name.endswith("_strides"):
        return ("i32",) * 3
    if name in ("held", "sums", "steps", "ends", "decays", "dt", "a", "d"):
        return "*fp32"
    return "*bf16" if name in ("q", "k", "v", "out", "x", "b", "c", "y") else "i32"


def _aligned(names: list[str], signature: dict[str, Any]) -> dict[tuple[int, ...], Any]:
    """What a launch finds out by itself where pointers and sizes are multiples of 16."""
    places: list[tuple[int, ...]] = []
    for k, name in enumerate(names):
        if name.endswith("_strides") and not name.startswith("dt"):
            places += [(k, part) for part in range(3)]
        elif str(signature[name]).startswith("*") or name in ("DV", "P", "width"):
            places.append((k,))
    return {place: [["tt.divisibility", 16]] for place in places}


def _small(entry: Kernel, dtype: torch.dtype, length: int = 70) -> tuple[torch.Tensor, ...]:
    sizes = {**entry.cases[2 if entry.name != "mamba2" else 1], "length": length}
    return entry.inputs(**sizes, dtype=dtype, device="cpu")


def _agree(entry: Kernel, args: tuple[Any, ...], **options: Any) -> None:
    found = entry.run(*args, **options)
    wanted = entry.reference(*args, **options)
    tolerance = dict(TOLERANCES[args[0].dtype])
    if wanted.numel():
        # Sums that are not divided by their weights grow with the length.
        tolerance["atol"] *= max(1.0, wanted.abs().max().item() / 10)
    torch.testing.assert_close(found, wanted, **tolerance)


def _refuses(entry: Kernel, word: str, *args: Any) -> None:
    try:
        entry.run(*args)
    except Unsupported as told:
        assert word in str(told), told
    else:
        raise AssertionError("was not refused")


def _has_no_backward(entry: Kernel, args: tuple[torch.Tensor, ...]) -> None:
    found = entry.run(*(arg.clone().requires_grad_() for arg in args))
    try:
        found.sum().backward()
    except RuntimeError:
        return
    raise AssertionError("a gradient came from nowhere")


def _compiles(entry: Kernel, args: tuple[torch.Tensor, ...]) -> None:
    """In one graph."""
    again = torch.compile(entry.run, fullgraph=True, backend="aot_eager")(*args)
    torch.testing.assert_close(again, entry.run(*args))


def _common_checks(entry: Kernel, variants: tuple[dict[str, Any], ...]) -> Iterator[Check]:
    for dtype in TOLERANCES:
        for sizes in entry.cases:
            args = entry.inputs(**sizes, dtype=dtype, device="cpu")
            yield f"{dtype} {dict(sizes)}", lambda args=args: _agree(entry, args)
    made = _small(entry, torch.float32)
    for variant in variants:
        yield f"{variant}", lambda variant=variant: _agree(entry, made[:5], **variant)
    for layout in LAYOUTS:
        names = ("strided", "transposed", "sliced") if layout == "mixed" else (layout,)
        args = tuple(lay_out(arg, names[k % len(names)]) for k, arg in enumerate(made))
        yield f"{layout} layout", lambda args=args: _agree(entry, args)
    # No memory lies between these rows: all are the same one.
    spread = tuple(arg[:1].expand(arg.shape) for arg in made)
    yield "the same again and again", lambda: _agree(entry, spread)
    yield "no rows", lambda: _agree(entry, _small(entry, torch.float32, length=0))
    yield "no batch", lambda: _agree(entry, tuple(arg[:0] if arg.ndim > 1 else arg for arg in made))
    yield "float64", lambda: _refuses(entry, "float64", *(arg.double() for arg in made))
    halves = (made[0].half(), *made[1:])
    yield "two types", lambda: _refuses(entry, "types differ", *halves)
    yield "no backward", lambda: _has_no_backward(entry, made)
    yield "one graph", lambda: _compiles(entry, made)


def _attention_checks(entry: Kernel) -> Iterator[Check]:
    long = entry.inputs(**entry.cases[3], dtype=torch.float32, device="cpu")
    yield "long, not normalised", lambda: _agree(entry, long, normalise=False)
    q, k, v = (x[:1] for x in _small(entry, torch.float16, length=520))
    # Sums of these are far beyond float16; what is divided by the weights is not.
    yield "large sums", lambda: _agree(entry, (q, k, torch.full_like(v, 300.0)))
    by_rows = tuple(x.transpose(1, 2).contiguous().transpose(1, 2) for x in _small(entry, torch.float32))
    yield "heads beside each other", lambda: _agree(entry, by_rows)
    q, k, v = _small(entry, torch.float32)
    yield "width of keys", lambda: _refuses(entry, "D = 8", q[..., :8], k[..., :8], v)
    yield "width of values", lambda: _refuses(entry, "DV = 24", q, k, v[..., :24])
    yield "lengths", lambda: _refuses(entry, "shapes", q, k, v[:, :, :9])
    if entry.name == "hedgehog":
        for d in (16, 128):
            args = entry.inputs(batch=1, heads=1, length=130, d=d, dv=64, dtype=torch.float16, device="cpu")
            yield f"{d} wide", lambda args=args: _agree(entry, args)
        wide = torch.zeros(1, 1, 8, 128)
        yield "width in float32", lambda: _refuses(entry, "D = 128", wide, wide, wide)


def _first_of_batch(args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(arg[:1] if arg.ndim > 1 else arg for arg in args)


def _is_nan_from(entry: Kernel, row: int, args: tuple[torch.Tensor, ...]) -> None:
    found = entry.run(*args)
    assert found[:, :row].isfinite().all() and found[:, row:].isnan().all()


def _is_close(entry: Kernel, args: tuple[torch.Tensor, ...]) -> None:
    wanted = entry.reference(*args)
    assert (entry.run(*args) - wanted).norm() < 1e-3 * wanted.norm()


def _mamba_checks(entry: Kernel) -> Iterator[Check]:
    x, dt, a, b, c, d = _first_of_batch(_small(entry, torch.float32))
    # Between a late key and an early query lies growth beyond float32: it must not be seen.
    yield "all is forgotten", lambda: _agree(entry, (x, 5 + dt, 30 * a, b, c, d))
    forgetful = dt.clone()
    forgetful[:, :8] = 1e4
    yield "all is forgotten but later digits", lambda: _is_close(entry, (x, forgetful, a, b, c, d))
    yield "nothing is forgotten", lambda: _agree(entry, (x, dt, 0 * a, b, c, d))
    yield "no time passes", lambda: _agree(entry, (x, 0 * dt, a, b, c, d))
    for step in (-1e-3, math.nan):
        bad = dt.clone()
        bad[:, 20] = step
        yield f"a step of {step}", lambda bad=bad: _is_nan_from(entry, 20, (x, bad, a, b, c, d))
    yield "a positive pace", lambda: _is_nan_from(entry, 0, (x, dt, -a, b, c, d))
    yield "short types", lambda: _agree(entry, (x, dt.half(), a.half(), b, c, d.half()))
    sizes = {"batch": 1, "length": 70, "heads": 2, "p": 64, "groups": 2, "n": 256}
    wide = entry.inputs(**sizes, dtype=torch.float16, device="cpu")
    single = entry.inputs(**sizes, dtype=torch.float32, device="cpu")
    yield "a wide state", lambda: _agree(entry, wide)
    yield "a wide state in float32", lambda: _refuses(entry, "N = 256", *single)
    yield (
        "groups",
        lambda: _refuses(entry, "divisor", x, dt, a, b.repeat(1, 1, 2, 1)[:, :, :3], c[:, :, [0, 1, 0]]),
    )
    yield "width of x", lambda: _refuses(entry, "P = 24", x[..., :24], dt, a, b, c)
    yield "width of b", lambda: _refuses(entry, "N = 8", x, dt, a, b[..., :8], c[..., :8])
    yield "heads", lambda: _refuses(entry, "heads", x, dt[..., :1], a, b, c)
    yield "lengths", lambda: _refuses(entry, "heads", x, dt, a, b[:, :9], c[:, :9])


def _checks(name: str) -> Iterator[Check]:
    entry = ENTRIES[name]
    own = _mamba_checks if name == "mamba2" else _attention_checks
    yield from own(entry)
    yield from _common_checks(entry, ({},) if name == "mamba2" else ({"normalise": False},))


def _told(check: Callable[[], None]) -> str:
    try:
        check()
    except Exception:
        return traceback.format_exc(limit=-3)[-1500:]
    return ""


if __name__ == "__main__":
    print(json.dumps({name: {label: _told(check) for label, check in _checks(name)} for name in ENTRIES}))
