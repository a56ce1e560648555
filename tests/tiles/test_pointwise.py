"""Gated activations, rotary embedding and expert routing: interpreted on a CPU, and compiled for Hopper.

The interpreter is chosen when Triton is imported: one child process (this file as a script) does all that is
interpreted, and says what went wrong under the name of each check.
"""

from __future__ import annotations

import functools
import json
import math
import re
import traceback
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
import triton
from interpreting import interpreted
from triton.compiler import ASTSource

from assay.problems.layouts import lay_out
from assay.tiles.gate import HOPPER, assembled
from assay.tiles.kernel import Kernel, Unsupported
from assay.tiles.kernels import dispatch, gated, rotary, topk_route

LAYOUTS = ("strided", "offset", "transposed", "sliced")
TYPES = (torch.float32, torch.float16)
CLOSE = {torch.float32: {"rtol": 1e-5, "atol": 2e-6}, torch.float16: {"rtol": 2e-3, "atol": 1e-3}}
HAVE_BACKWARD = (*gated.ENTRIES, rotary.ENTRY)
ROUTE = topk_route.ENTRY
ENTRIES = (*HAVE_BACKWARD, ROUTE, *dispatch.ENTRIES)


def listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


def followed(entry: Kernel, given: tuple[Any, ...], layout: str) -> list[Any]:
    """Copies laid out anew; those that have a gradient ask for it, and keep it in their own layout."""
    made = []
    for k, value in enumerate(given):
        is_table = entry is rotary.ENTRY and k in (2, 3)
        if isinstance(value, torch.Tensor):
            value = lay_out(value, layout).detach()
            value.requires_grad_(entry in HAVE_BACKWARD and not is_table)
        made.append(value)
    return made


def agree(
    entry: Kernel, given: tuple[Any, ...], layout: str = "given", draw: Callable = torch.randn_like
) -> None:
    """Forward and, where there is one, backward, against the reference on plain copies."""
    one, other = followed(entry, given, layout), followed(entry, given, "given")
    found, expected = listed(entry.run(*one)), listed(entry.reference(*other))
    close = CLOSE[given[0].dtype]
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.is_contiguous()
        torch.testing.assert_close(mine, theirs, **close, equal_nan=True)
    if entry not in HAVE_BACKWARD:
        return
    grads = [draw(value) for value in found]
    torch.autograd.backward(found, grads)
    torch.autograd.backward(expected, [grad.contiguous() for grad in grads])
    for mine, theirs in zip(one, other, strict=True):
        if isinstance(mine, torch.Tensor) and mine.requires_grad:
            torch.testing.assert_close(mine.grad, theirs.grad, **close, equal_nan=True)


def refuses(run: Callable, *given: Any, word: str) -> None:
    with pytest.raises(Unsupported, match=re.escape(word)):
        run(*given)


def check_cases(entry: Kernel) -> None:
    for sizes in entry.cases:
        for dtype in TYPES:
            agree(entry, entry.inputs(**sizes, dtype=dtype, device="cpu"))


def check_layouts(entry: Kernel) -> None:
    """What lies between the elements is NaN; gradients come with every stride 0, or transposed."""
    for sizes in entry.cases[1::2]:
        given = entry.inputs(**sizes, dtype=torch.float32, device="cpu")
        for layout in LAYOUTS:
            agree(entry, given, layout)
        if entry in HAVE_BACKWARD:
            agree(entry, given, draw=lambda value: torch.ones(()).expand(value.shape))
            agree(entry, given, draw=lambda value: lay_out(torch.randn_like(value), "transposed"))


def check_compiled(entry: Kernel) -> None:
    """Under torch.compile in one graph as without it, the loss being of the first output alone."""
    for run in (entry.run, torch.compile(entry.run, backend="aot_eager", fullgraph=True)):
        given = entry.inputs(**entry.cases[1], dtype=torch.float32, device="cpu")
        one, other = followed(entry, given, "given"), followed(entry, given, "given")
        found, expected = listed(run(*one)), listed(entry.reference(*other))
        torch.testing.assert_close(found, expected, **CLOSE[torch.float32])
        if entry in HAVE_BACKWARD:
            found[0].square().sum().backward()
            expected[0].square().sum().backward()
            torch.testing.assert_close(one[0].grad, other[0].grad, **CLOSE[torch.float32])


def check_gated_shapes(entry: Kernel) -> None:
    for shape in ((6,), (2, 3, 4, 10), (0, 6), (4, 0), (2, 0, 8)):
        agree(entry, (torch.randn(shape),))
        agree(entry, (torch.randn(shape), torch.randn(shape)))
    agree(entry, (torch.randn(7, 40)[:, 3:37],))
    apart = (torch.randn(7, 40)[:, :17], torch.randn(7, 60)[:, 5:22])
    agree(entry, apart, draw=lambda value: torch.randn(7, 50)[:, :17])
    agree(entry, (torch.tensor([[-1e4, -90.0, -1e-30, 0.0, 20.0, 1e4] * 2]),))
    agree(entry, (torch.randn(3, 5).half(), torch.randn(5, 3).half().t()))


def check_gated_refuses(entry: Kernel) -> None:
    x = torch.randn(4, 6)
    refuses(entry.run, x.double(), word="float64")
    refuses(entry.run, x.int(), word="int32")
    refuses(entry.run, x, x.half(), word="types differ")
    refuses(entry.run, x[:, :5], word="no halves")
    refuses(entry.run, x, x[:1], word="shapes differ")
    refuses(entry.run, torch.tensor(1.0), word="without dimensions")
    refuses(entry.run, torch.empty(1).expand(2**31), word="split")
    refuses(entry.run, x, x.to("meta"), word="different devices")


def check_rotary_shapes() -> None:
    """Nothing; more positions than a program takes, and more heads, which may be 4 or 8."""
    draw = functools.partial(rotary.inputs, kv_heads=1, d=8, dtype=torch.float32, device="cpu")
    for is_packed in (True, False):
        agree(rotary.ENTRY, draw(batch=2, sequence=0, heads=3, is_packed=is_packed))
        agree(rotary.ENTRY, draw(batch=2, sequence=300, heads=5, is_packed=is_packed))
    with mock.patch.object(rotary, "MANY_TILES", 0):
        agree(rotary.ENTRY, draw(batch=1, sequence=5, heads=11))
        agree(rotary.ENTRY, draw(batch=1, sequence=5, heads=2, kv_heads=0, is_packed=False))


def check_rotary_meaning() -> None:
    """Turns keep lengths, leave position 0 alone, scores tell the distance alone; v is copied bit by bit."""
    sizes = {"batch": 1, "sequence": 9, "heads": 2, "kv_heads": 2, "d": 16}
    packed, _, cos, sin, kv_heads = rotary.inputs(**sizes, dtype=torch.float32, device="cpu")
    packed[:] = packed[:, :1].clone()
    packed[0, 3, 4:] = float("nan")
    packed[0, 4, 5, 0] = float("inf")
    q, k, v = rotary.rotary(packed, None, cos, sin, kv_heads)
    torch.testing.assert_close(v, packed[:, :, 4:].transpose(1, 2), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(q[:, :, 0], packed[:, 0, :2], rtol=0, atol=0)
    torch.testing.assert_close(q.norm(dim=-1)[..., 1:], q.norm(dim=-1)[..., :-1])
    scores = q @ k.transpose(2, 3)
    torch.testing.assert_close(scores[:, :, 1:, 1:], scores[:, :, :-1, :-1], rtol=1e-4, atol=1e-4)


def check_rotary_refuses() -> None:
    run = rotary.rotary
    x, k, cos = torch.randn(2, 5, 4, 8), torch.randn(2, 5, 2, 8), torch.randn(5, 4)
    refuses(run, x.double(), None, cos, cos, 1, word="float64")
    refuses(run, x, k.half(), cos, cos, word="types differ")
    refuses(run, x, None, cos.half(), cos.half(), 1, word="float32")
    refuses(run, x, None, cos, cos, word="packed heads")
    refuses(run, x, k, cos, cos, 1, word="k has 2")
    refuses(run, x[..., :7], None, cos, cos, 1, word="even")
    refuses(run, x[..., :0], None, cos[:, :0], cos[:, :0], 1, word="even")
    refuses(run, x, None, cos[:4], cos, 1, word="tables")
    refuses(run, x, None, cos, cos[:, :3], 1, word="tables")
    refuses(run, x, k[:1], cos, cos, word="alike but for the heads")
    refuses(run, x[0], None, cos, cos, 1, word="batch, sequence")
    refuses(run, x, None, cos.requires_grad_(), cos, 1, word="detach")


def check_route_values() -> None:
    """Ties, both zeros, infinities and NaN, one expert for all, and all experts for each."""
    inf, nan = float("inf"), float("nan")
    rows = [
        [1.0, 1.0, 1.0, 1.0, 0.0],
        [-0.0, 0.0, -0.0, 0.0, 0.0],
        [-inf, -inf, -inf, 2.0, -inf],
        [-inf] * 5,
        [0.0, nan, 3.0, nan, inf],
        [-1e-40, 1e-40, -3e38, 3e38, 0.0],
    ]
    for dtype in TYPES:
        for k in (1, 3, 5):
            agree(ROUTE, (torch.tensor(rows).to(dtype), k))
            agree(ROUTE, (numbers_that_are_none(dtype), k))
            agree(ROUTE, (torch.randint(0, 3, (200, 12)).to(dtype), k))
        agree(ROUTE, (torch.tensor([[0.0, 5.0, 1.0]]).expand(300, 3).to(dtype), 1))
        agree(ROUTE, (torch.randn(0, 7).to(dtype), 2))


def numbers_that_are_none(dtype: torch.dtype) -> torch.Tensor:
    """Among others, of both signs and with several digits."""
    whole = torch.int32 if dtype == torch.float32 else torch.int16
    infinity = torch.tensor(math.inf, dtype=dtype).view(whole)
    nans = infinity + torch.tensor([1, 2, 100], dtype=whole)
    both = torch.cat((nans, nans | torch.iinfo(whole).min)).view(dtype)
    others = torch.tensor([2.0, math.inf, -math.inf, 3.0], dtype=dtype)
    return torch.stack([torch.cat((others, one[None], others)) for one in both])


def check_route_meaning() -> None:
    """Weights are those of the whole softmax, renormalised; the pieces of the order fit each other."""
    logits = torch.randn(150, 20)
    route = topk_route.topk_route(logits, 6)
    top = logits.softmax(1).topk(6)
    torch.testing.assert_close(route.weights, top.values / top.values.sum(1, keepdim=True))
    assert torch.equal(route.experts.long(), top.indices)
    assert torch.equal(route.order[route.position.flatten().long()], torch.arange(900).int())
    for e in range(20):
        items = route.order[route.offsets[e] : route.offsets[e + 1]].long()
        assert len(items) == route.counts[e] and (items.diff() > 0).all()
        assert (route.experts.flatten()[items] == e).all()


def check_route_in_parts() -> None:
    """Many programs, of which each adds up those before in several turns and places its items in several."""
    for few, most in ((5, 8), (2, 255)):
        sizes = {"FEW_PROGRAMS": few, "MOST_STEPS": most, "MOST_ADDED": 128, "MOST_PLACED": 64}
        with mock.patch.multiple(topk_route, **sizes):
            agree(ROUTE, (torch.randn(3000, 6).half(), 2))
            agree(ROUTE, (torch.randint(0, 4, (700, 64)).float(), 5))


def check_route_to_one() -> None:
    """Every token of a row of the tile chooses the same, as often as 8 bits can count."""
    with mock.patch.object(topk_route, "FEW_PROGRAMS", 1):
        logits = torch.zeros(16 * 255 - 3, 256)
        logits[:, 255], logits[:, 7] = 2, 1
        agree(ROUTE, (logits, 2))
        assert topk_route._part(len(logits), 256, True, logits) == (16, 255)


def check_route_round_trip() -> None:
    """Rows that experts leave as they are come back; with no token and with no column nothing does."""
    for tokens, n in ((50, 70), (0, 8), (3, 0)):
        x = torch.randn(tokens, n)
        route = topk_route.topk_route(torch.randn(tokens, 9), 4)
        rows = dispatch.dispatch(x, route.position)
        assert torch.equal(rows, x[route.order.long() // 4])
        torch.testing.assert_close(dispatch.combine(rows, route.position, route.weights), x)


def check_route_refuses() -> None:
    logits, x = torch.randn(4, 6), torch.randn(4, 8)
    route = topk_route.topk_route(logits, 2)
    refuses(topk_route.topk_route, logits.double(), 2, word="float64")
    refuses(topk_route.topk_route, logits, 7, word="k = 7")
    refuses(topk_route.topk_route, torch.randn(2, 20), 9, word="k = 9")
    refuses(topk_route.topk_route, logits, 0, word="k = 0")
    refuses(topk_route.topk_route, torch.randn(2, 257), 2, word="up to 256")
    refuses(topk_route.topk_route, torch.empty(1, 1).expand(2**29, 3), 3, word="split")
    refuses(dispatch.dispatch, x[:3], route.position, word="3 rows")
    refuses(dispatch.dispatch, x, route.position.long(), word="int64")
    refuses(dispatch.dispatch, x[0], route.position, word="(rows, n)")
    refuses(dispatch.combine, x, route.position, route.weights, word="4 rows")
    refuses(dispatch.combine, torch.randn(8, 8), route.position, route.weights[:3], word="shapes differ")
    refuses(dispatch.combine, torch.randn(8, 8), route.position, route.weights.half(), word="float16")
    with pytest.raises(RuntimeError, match="no backward"):
        topk_route.topk_route(logits.requires_grad_(), 2).weights.sum().backward()


CHECKS: dict[str, Callable[[], None]] = {
    **{f"{entry.name} cases": functools.partial(check_cases, entry) for entry in ENTRIES},
    **{f"{entry.name} layouts": functools.partial(check_layouts, entry) for entry in ENTRIES},
    **{f"{entry.name} shapes": functools.partial(check_gated_shapes, entry) for entry in gated.ENTRIES},
    **{f"{entry.name} refuses": functools.partial(check_gated_refuses, entry) for entry in gated.ENTRIES},
    "rotary shapes": check_rotary_shapes,
    "rotary meaning": check_rotary_meaning,
    "rotary refuses": check_rotary_refuses,
    "topk_route values": check_route_values,
    "topk_route meaning": check_route_meaning,
    "topk_route in parts": check_route_in_parts,
    "topk_route to one": check_route_to_one,
    "topk_route round trip": check_route_round_trip,
    "topk_route refuses": check_route_refuses,
    **{f"{entry.name} compiled": functools.partial(check_compiled, entry) for entry in ENTRIES},
}


def interpret() -> dict[str, str]:
    said = {}
    for name, check in CHECKS.items():
        torch.manual_seed(0)
        try:
            check()
            said[name] = ""
        except Exception:
            said[name] = traceback.format_exc()[-3000:]
    return said


@pytest.mark.parametrize("name", CHECKS)
def test_interpreted(name: str) -> None:
    assert interpreted(__file__)[name] == ""


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_plain_cpu_tensors_take_the_reference(entry: Kernel) -> None:
    for sizes in entry.cases:
        agree(entry, entry.inputs(**sizes, dtype=torch.float32, device="cpu"))
    for sizes in (*entry.cases, *entry.sizes):
        assert entry.cost(**sizes).size_bytes > 0


def places(kind: Any, place: tuple[int, ...]) -> dict[tuple[int, ...], str]:
    """Types by place; tuples have places inside."""
    if not isinstance(kind, tuple):
        return {place: kind}
    return {at: each for k, inner in enumerate(kind) for at, each in places(inner, (*place, k)).items()}


def compiled(kernel: Any, types: dict[str, Any], constants: dict[str, Any], warps: int) -> tuple[str, int]:
    """The PTX, and the bytes that the assembler spills; pointers and sizes are multiples of 16, or 1."""
    names = kernel.arg_names
    each = places(tuple(types.get(name, "given") for name in names), ())
    aligned = {at: [["tt.divisibility", 16]] for at, kind in each.items() if kind[0] in "*i"}
    values = {at: 1 for at, kind in each.items() if kind == "constexpr"}
    values |= {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, {name: types.get(name, "constexpr") for name in names}, values, aligned)
    text = triton.compile(source, target=HOPPER, options={"num_warps": warps}).asm["ptx"]
    return text, sum(int(n) for n in re.findall(r"(\d+) bytes spill", assembled(text)))


def strides(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "i32")


def pointers(kind: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, f"*{kind}")


@pytest.mark.parametrize("is_gelu", [False, True])
@pytest.mark.parametrize(
    ("high", "cols", "rows"), [(4, 1024, "i32"), (1, 4096, "constexpr"), (1, 1, "constexpr")]
)
def test_gated_compiles(is_gelu: bool, high: int, cols: int, rows: str) -> None:
    constants = {"IS_GELU": is_gelu, "ROWS": high, "COLS": cols}
    sizes = {"rows": rows, "n": "constexpr" if cols == 1 else "i32"}
    types = pointers("bf16", "a", "b", "out") | strides("a_step", "b_step", "out_step") | sizes
    text, spilled = compiled(gated.gated_kernel, types, constants, gated.WARPS)
    assert spilled == 0 and (cols == 1 or only_wide(text))
    steps = strides("grad_step", "a_step", "b_step", "da_step", "db_step")
    types = pointers("bf16", "grad", "a", "b", "da", "db") | steps | sizes
    text, spilled = compiled(gated.gated_backward_kernel, types, constants, gated.WARPS)
    assert spilled == 0 and (cols == 1 or only_wide(text))


def only_wide(text: str) -> bool:
    """All that it loads and stores is 16 bytes at a time."""
    found = set(re.findall(r"(?:ld|st)\.global[\w.:]*", text))
    return found == {"ld.global.v4.b32", "st.global.v4.b32"}


@pytest.mark.parametrize("heads", [("i32", "i32", "i32"), ("i32", "constexpr"), ("i32", "i32", "constexpr")])
@pytest.mark.parametrize("d", [2, 96, 128, 512])
def test_rotary_compiles(d: int, heads: tuple[str, ...]) -> None:
    parts = len(heads)
    cols = triton.next_power_of_2(d // 2)
    types = {
        "sources": ("*bf16",) * parts,
        "targets": ("*bf16",) * parts,
        "x_steps": (("i32",) * 3,) * parts,
        "o_steps": (("i32",) * 3,) * parts,
        "heads": heads,
        **pointers("fp32", "cos", "sin"),
        "sequence": "i32",
    }
    constants = {"SIGN": -1, "HALF_D": d // 2, "ROWS": rotary.TILE // cols, "COLS": cols, "HEADS": 8}
    constants["TOGETHER"] = rotary.TOGETHER
    text, spilled = compiled(rotary.rotary_kernel, types, constants, rotary.WARPS)
    assert spilled == 0 and (d == 2 or only_wide(text))


@pytest.mark.parametrize("kind", ["bf16", "fp32"])
@pytest.mark.parametrize(("experts", "k"), [(256, 8), (256, 1), (64, 6), (8, 2), (1, 1)])
def test_route_compiles(experts: int, k: int, kind: str) -> None:
    is_wide = kind == "fp32"
    high, _ = topk_route._part(1, experts, is_wide, torch.empty(0))
    warps = topk_route._warps(experts, is_wide)
    constants = {"K": k, "ROWS": high, "COLS": experts, "OVERLAPS": True}
    sums, best = pointers("i32", "begins", "totals"), pointers("i64" if is_wide else "i32", "best")
    types = pointers(kind, "logits") | best | sums | strides("tokens", "experts", "row_step", "steps")
    text, spilled = compiled(topk_route.route_kernel, types, constants, warps)
    assert spilled == 0 and "griddepcontrol.launch_dependents" in text
    types = best | sums | pointers("fp32", "weights") | strides("tokens", "experts", "steps")
    types |= pointers("i32", "chosen", "order", "position", "counts", "offsets")
    constants |= {"DTYPE": topk_route.TYPES[torch.float32 if is_wide else torch.bfloat16]}
    constants |= {"HIGH": topk_route.MOST_ADDED // experts, "K_COLS": triton.next_power_of_2(k)}
    constants |= {"TOKENS": topk_route.MOST_PLACED // constants["K_COLS"]}
    text, spilled = compiled(topk_route.place_kernel, types, constants, 8 // topk_route._at_once(experts))
    before, after = text.split("griddepcontrol.wait")
    assert spilled == 0 and ".global" not in before.split("{", 1)[1] and "ld.global" in after


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_what_threads_read_others_do_not_write(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    """Some threads read a key twice, and nobody waits for the second time before experts are stored."""
    launched: dict[Any, Any] = {}
    monkeypatch.setattr(
        topk_route, "start", lambda kernel, _, given, *__, **___: launched.update({kernel: given})
    )
    topk_route._route_op.function(torch.zeros(50, 8, dtype=dtype), 2)
    keys, *_ = launched[topk_route.place_kernel]
    places = [given.data_ptr() for given in launched[topk_route.place_kernel][1:9]]
    assert keys.data_ptr() not in places


@pytest.mark.parametrize("k", [1, 2, 8])
def test_rows_compile(k: int) -> None:
    constants = {"K": k, "COLS": 2048}
    types = pointers("bf16", "x", "out") | pointers("i32", "position") | strides("n", "x_step")
    text, spilled = compiled(dispatch.dispatch_kernel, types, constants, 4)
    assert spilled == 0 and text.count("st.global.v4.b32") == 2 * k and text.count("ld.global.b32") == k
    types = pointers("bf16", "rows", "out") | pointers("i32", "position") | pointers("fp32", "weights")
    types |= strides("n", "rows_step")
    text, spilled = compiled(dispatch.combine_kernel, types, constants, 4)
    assert spilled == 0 and text.count("ld.global.v4.b32") == 2 * k and text.count("ld.global.b32") == 2 * k


if __name__ == "__main__":
    print(json.dumps(interpret()))
