"""Mixture-of-experts routing: each token's experts, and where its rows lie sorted by expert. Forward only.

`topk_route`, from logits L (tokens, experts): experts[t] = the k highest of L[t], highest first, and
weights[t] = softmax(L[t, experts[t]]), the softmax over all experts renormalised over the k. The items
(t, j), numbered t * k + j, are sorted by expert, then by token: counts[e] = items of expert e,
offsets[e] = counts[0] + ... + counts[e - 1], order = the items so sorted, and position says where each one
went: order[position[t, j]] = t * k + j.
What is done with places: dispatch.py.

Of equal logits the lower expert wins, NaN is higher than all: the result is the same every time. One kernel
finds the k highest and counts, the next one adds up what comes before and places. Nothing waits for the host,
and no shape depends on the logits. Up to 256 experts, k up to
8; logits bf16, fp16 or float32, weights float32. Not covered: gradients, expert capacities, dropped
tokens, biases.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from assay.tiles.kernel import Cost, Kernel, Unsupported, launches, need_dtype, need_few
from assay.tiles.launch import multiprocessors, runs_on_hopper, start
from assay.tiles.op import op
from assay.tiles.overlap import let_next_begin, wait_for_last

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
MOST_EXPERTS = 256
MOST_K = 8
MOST_STEPS = 255
"""Tokens of a row, of which 8 bits count those with an expert."""
FEW_PROGRAMS = 2
"""Interpreted, where there are no multiprocessors."""
MANY_COLUMNS = 64
ADDED, MOST_ADDED = (32, 128, 512), 16384
"""Programs whose sums are added at once, few kinds of them, and sums in all."""
MOST_PLACED = 4096
"""Items that are placed at once."""
TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
MOST_IN_ALL = 2**30
"""Tokens times k, so that the last program's numbers fit in 32 bits too."""


class Route(NamedTuple):
    weights: torch.Tensor
    """(tokens, k) float32, highest first."""
    experts: torch.Tensor
    """(tokens, k) int32."""
    order: torch.Tensor
    """(tokens * k) int32: items sorted by expert; the token of an item is item // k."""
    position: torch.Tensor
    """(tokens, k) int32: where `order` has each item."""
    counts: torch.Tensor
    """(experts) int32."""
    offsets: torch.Tensor
    """(experts + 1) int32; the last is tokens * k."""


@triton.jit
def _keys(x, below):
    """Whole numbers in the order of the logits, with 16 bits below each of them.

    Counted from minus infinity, NaN of either sign is above infinity, as what is negative is largest.
    """
    WIDE: tl.constexpr = x.dtype == tl.float32
    KIND: tl.constexpr = tl.uint64 if WIDE else tl.uint32
    BELOW: tl.constexpr = 0 if WIDE else 16
    ONE: tl.constexpr = 1 << BELOW
    INFINITY: tl.constexpr = 0x7C000000 if x.dtype == tl.float16 else 0x7F800000
    bits = x.to(tl.int32 if WIDE else tl.int16, bitcast=True).to(tl.int32) << BELOW
    sign = bits >> 31
    ranked = (((bits & 0x7FFFFFFF) ^ sign) - sign + INFINITY).to(tl.uint32, bitcast=True)
    ranked = tl.minimum(ranked, 2 * INFINITY + ONE).to(KIND)
    return (ranked << (16 - BELOW)) | below.to(KIND)


@triton.jit
def _values(keys, DTYPE: tl.constexpr):
    """The logits again."""
    WIDE: tl.constexpr = tl.float32 == DTYPE
    INFINITY: tl.constexpr = 0x7F800000 if WIDE else (0x7C00 if tl.float16 == DTYPE else 0x7F80)
    ranked = (keys >> 16).to(tl.uint32).to(tl.int32, bitcast=True) - INFINITY
    bits = tl.where(ranked < 0, -ranked | (-(2**31) if WIDE else 0x8000), ranked)
    return bits.to(tl.int32 if WIDE else tl.int16).to(DTYPE, bitcast=True).to(tl.float32)


@triton.jit
def _in_order(a, b):
    return tl.maximum(a, b), tl.minimum(a, b)


@triton.jit
def _four_in_order(a, b, c, d, e, f, g, h):
    """a and b, c and d, e and f, g and h."""
    a, b = _in_order(a, b)
    c, d = _in_order(c, d)
    e, f = _in_order(e, f)
    g, h = _in_order(g, h)
    return a, b, c, d, e, f, g, h


@triton.jit
def _sorted(x):
    """The eight numbers of each thread, the highest first, by nineteen exchanges."""
    even, odd = tl.split(tl.reshape(x, [x.shape[0], x.shape[1] // 8, 2, 2, 2]))
    low, high = tl.split(even)
    a, e = tl.split(low)
    c, g = tl.split(high)
    low, high = tl.split(odd)
    b, f = tl.split(low)
    d, h = tl.split(high)
    a, c, b, d, e, g, f, h = _four_in_order(a, c, b, d, e, g, f, h)
    a, e, b, f, c, g, d, h = _four_in_order(a, e, b, f, c, g, d, h)
    a, b, c, d, e, f, g, h = _four_in_order(a, b, c, d, e, f, g, h)
    c, e = _in_order(c, e)
    d, f = _in_order(d, f)
    b, e = _in_order(b, e)
    d, g = _in_order(d, g)
    b, c = _in_order(b, c)
    d, e = _in_order(d, e)
    f, g = _in_order(f, g)
    return a, b, c, d, e, f, g, h


@triton.jit
def _highest(keys, K: tl.constexpr):
    """The K highest of each row, one in each column, and the last of them. What is taken becomes 0, as only
    the last of 256 columns may be, which is not among eight."""
    if keys.shape[1] < 64:
        place = tl.arange(0, keys.shape[1])[None, :]
        best = tl.zeros_like(keys)
        for j in tl.static_range(K):
            top = tl.max(keys, 1)[:, None]
            best = tl.where(place == j, top, best)
            keys = tl.where(keys == top, 0, keys)
    else:
        place = tl.arange(0, keys.shape[1] // 8)[None, :]
        a, b, c, d, e, f, g, h = _sorted(keys)
        best = tl.zeros_like(a)
        for j in tl.static_range(K):
            top = tl.max(a, 1)[:, None]
            best = tl.where(place == j, top, best)
            gone = a == top
            a = tl.where(gone, b, a)
            b = tl.where(gone, c, b)
            c = tl.where(gone, d, c)
            d = tl.where(gone, e, d)
            e = tl.where(gone, f, e)
            f = tl.where(gone, g, f)
            g = tl.where(gone, h, g)
            h = tl.where(gone, 0, h)
    return best, top


@triton.jit
def route_kernel(
    logits, best, begins, totals, tokens, experts, row_step, steps,
    K: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    """The keys of the k highest of each token, no two of a token alike: 8 bits of a key tell the column, the
    lowest 8 how often a row of the tile, which walks over so many tokens, had chosen that before."""
    if OVERLAPS:
        let_next_begin()
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLS)[None, :]
    NEVER: tl.constexpr = float("-inf")  # chosen, as it has the highest columns, and there are k others
    below = (255 - column) * 256 + tl.zeros([ROWS, COLS], tl.int32)
    at = logits + (row * steps).to(tl.int64) * row_step + column
    x = tl.load(at, (row * steps < tokens) & (column < experts), other=NEVER)
    for step in range(steps):
        token = row * steps + step
        at += row_step
        ahead = tl.load(at, (token + 1 < tokens) & (step + 1 < steps) & (column < experts), other=NEVER)
        keys = _keys(x, below)
        found, last = _highest(keys, K)
        place = tl.arange(0, found.shape[1])[None, :]
        found = found.to(best.dtype.element_ty, bitcast=True)
        tl.store(best + token * K + place, found, (token < tokens) & (place < K))
        below += ((keys >= last) & (token < tokens)).to(tl.int32)
        x = ahead
    seen = below & 255
    tl.store(begins + row * COLS + column, seen)
    tl.store(totals + tl.program_id(0) * COLS + tl.arange(0, COLS), tl.sum(seen, 0))


@triton.jit
def place_kernel(
    best, begins, totals, weights, chosen, order, position, counts, offsets, tokens, experts, steps,
    DTYPE: tl.constexpr, K: tl.constexpr, K_COLS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    HIGH: tl.constexpr, TOKENS: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    """An item comes after those of lower experts, and of its own those of programs before, of rows before and
    of tokens before."""
    if OVERLAPS:
        wait_for_last()
    me = tl.program_id(0)
    column = tl.arange(0, COLS)
    at = (me * ROWS + tl.arange(0, ROWS)[:, None]) * COLS + column[None, :]
    mine = tl.load(begins + at)
    total = tl.zeros([COLS], tl.int32)
    before = tl.zeros([COLS], tl.int32)
    for first in range(0, tl.num_programs(0), HIGH):
        program = first + tl.arange(0, HIGH)[:, None]
        some = tl.load(totals + program * COLS + column[None, :], program < tl.num_programs(0), other=0)
        total += tl.sum(some, 0)
        before += tl.sum(tl.where(program < me, some, 0), 0)
    offset = tl.cumsum(total, 0) - total
    if me == 0:
        tl.store(counts + column, total, column < experts)
        tl.store(offsets + column, offset, column < experts)
        tl.store(offsets + experts, tokens * K)
    tl.store(begins + at, (offset + before)[None, :] + tl.cumsum(mine, 0) - mine)
    tl.debug_barrier()  # others of this program read it
    KIND: tl.constexpr = tl.uint64 if tl.float32 == DTYPE else tl.uint32
    slot = tl.arange(0, K_COLS)[None, :]
    for first in range(0, ROWS * steps, TOKENS):
        own = first + tl.arange(0, TOKENS)[:, None]
        token = me * ROWS * steps + own
        item = token * K + slot
        real = (own < ROWS * steps) & (token < tokens) & (slot < K)
        key = tl.load(best + item, real, other=0).to(KIND, bitcast=True)
        scores = tl.where(slot < K, tl.where(token < tokens, _values(key, DTYPE), 0.0), float("-inf"))
        scores = tl.exp(scores - tl.max(scores, 1)[:, None])
        tl.store(weights + item, scores / tl.sum(scores, 1)[:, None], real)
        expert = 255 - ((key >> 8) & 255).to(tl.int32)
        tl.store(chosen + item, expert, real)
        place = tl.load(begins + (token // steps) * COLS + expert, real) + (key & 255).to(tl.int32)
        tl.store(position + item, place, real)
        tl.store(order + place, item, real)


def reference(logits: torch.Tensor, k: int) -> Route:
    # NaN has a sign, by which torch sorts it on a GPU.
    unsigned = logits.float().masked_fill(logits.isnan(), float("nan"))
    ranked = unsigned.sort(dim=1, descending=True, stable=True)
    experts = ranked.indices[:, :k].contiguous()
    order = experts.flatten().sort(stable=True).indices
    position = torch.empty_like(order)
    position[order] = torch.arange(order.numel(), device=order.device)
    each = torch.arange(logits.shape[1], device=logits.device)
    counts = (experts.flatten() == each[:, None]).sum(1)
    offsets = torch.cat((counts.new_zeros(1), counts.cumsum(0)))
    whole = (experts, order, position.view(experts.shape), counts, offsets)
    return Route(ranked.values[:, :k].softmax(1), *(tensor.int() for tensor in whole))


@op("topk_route")
def _route_op(logits: torch.Tensor, k: int) -> list[torch.Tensor]:
    tokens, experts = logits.shape
    *_, counts, offsets = made = _route_shapes(logits, k)
    if tokens == 0:
        counts.zero_()
        offsets.zero_()
        return made
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    cols, k_cols, is_wide = triton.next_power_of_2(experts), triton.next_power_of_2(k), logits.itemsize == 4
    high, steps = _part(tokens, cols, is_wide, logits)
    programs = triton.cdiv(tokens, high * steps)
    best = counts.new_empty((tokens, k), dtype=torch.int64 if is_wide else torch.int32)
    begins, totals = counts.new_empty(programs * high * cols), counts.new_empty(programs * cols)
    overlaps = runs_on_hopper(logits)
    sizes = {"K": k, "ROWS": high, "COLS": cols, "OVERLAPS": overlaps, "num_warps": _warps(cols, is_wide)}
    arguments = (logits, best, begins, totals, tokens, experts, logits.stride(0), steps)
    start(route_kernel, (programs,), arguments, logits, **sizes)
    sizes |= {"DTYPE": TYPES[logits.dtype], "K_COLS": k_cols, "launch_pdl": overlaps}
    sizes["num_warps"] = 8 // _at_once(cols)
    sizes["HIGH"] = min(next((n for n in ADDED if n >= programs), ADDED[-1]), MOST_ADDED // cols)
    sizes["TOKENS"] = triton.next_power_of_2(min(high * steps, MOST_PLACED // k_cols))
    arguments = (best, begins, totals, *made, tokens, experts, steps)
    start(place_kernel, (programs,), arguments, logits, **sizes)
    return made


def _at_once(cols: int) -> int:
    """Programs of a multiprocessor. Fewer are faster where what each of them counts is long."""
    return 1 if cols > MANY_COLUMNS else 2


def _warps(cols: int, is_wide: bool) -> int:
    """Twice as many registers for keys of 64 bits."""
    return 16 if is_wide else 32 // _at_once(cols)


def _part(tokens: int, cols: int, is_wide: bool, on: torch.Tensor) -> tuple[int, int]:
    """Of a program: rows of its tile, in which a thread has up to eight columns, and tokens of a row."""
    high = _warps(cols, is_wide) * 32 // max(cols // 8, min(cols, 8))
    programs = multiprocessors(on) * _at_once(cols) if on.is_cuda else FEW_PROGRAMS
    return high, min(triton.cdiv(tokens, high * programs), MOST_STEPS)


@_route_op.register_fake
def _route_shapes(logits: torch.Tensor, k: int) -> list[torch.Tensor]:
    tokens, experts = logits.shape
    shapes = ((tokens, k), (tokens * k,), (tokens, k), (experts,), (experts + 1,))
    whole = [logits.new_empty(shape, dtype=torch.int32) for shape in shapes]
    return [logits.new_empty((tokens, k), dtype=torch.float32), *whole]


def topk_route(logits: torch.Tensor, k: int) -> Route:
    """Args:
    logits: (tokens, experts).
    """
    need_dtype(logits, of=DTYPES)
    need_few(logits)
    if logits.dim() != 2 or not 0 < logits.shape[1] <= MOST_EXPERTS:
        raise Unsupported(
            f"logits of shape {tuple(logits.shape)}: give (tokens, experts up to {MOST_EXPERTS})"
        )
    if not isinstance(k, int | torch.SymInt) or not 0 < k <= min(MOST_K, logits.shape[1]):
        raise Unsupported(
            f"k = {k} of {logits.shape[1]} experts: use 1 to {MOST_K}, and no more than there are"
        )
    if logits.shape[0] * k > MOST_IN_ALL:
        raise Unsupported(f"{logits.shape[0]} tokens times {k} are more than 2^30: split the tokens")
    return Route(*_route_op(logits, k)) if launches(logits) else reference(logits, k)


def inputs(
    *, tokens: int, experts: int, k: int, dtype: torch.dtype = torch.bfloat16, device: str = "cuda"
) -> tuple[Any, ...]:
    return torch.randn(tokens, experts, device=device).to(dtype), k


def cost(*, tokens: int, experts: int, k: int, dtype: torch.dtype = torch.bfloat16) -> Cost:
    """Logits in; weights, experts, order and position out; comparisons are counted as operations."""
    size_bytes = tokens * experts * dtype.itemsize + 16 * tokens * k + 4 * (2 * experts + 1)
    return Cost(size_bytes=size_bytes, flops=tokens * experts * k)


ENTRY = Kernel(
    name="topk_route",
    formula="softmax over the k highest of each row, and the rows' places sorted by expert",
    run=topk_route,
    reference=reference,
    inputs=inputs,
    cases=(
        {"tokens": 40, "experts": 8, "k": 2},
        {"tokens": 130, "experts": 60, "k": 3},
        {"tokens": 33, "experts": 256, "k": 8},
        {"tokens": 1, "experts": 1, "k": 1},
    ),
    sizes=(
        {"tokens": 8192, "experts": 8, "k": 2},
        {"tokens": 65_536, "experts": 64, "k": 6},
        {"tokens": 65_536, "experts": 256, "k": 8},
    ),
    cost=cost,
)
