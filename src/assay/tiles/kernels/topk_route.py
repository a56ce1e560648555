"""Mixture-of-experts routing: each token's experts, and where its rows lie sorted by expert. Forward only.

`topk_route`, from logits L (tokens, experts): experts[t] = the k highest of L[t], highest first, and
weights[t] = softmax(L[t, experts[t]]), the softmax over all experts renormalised over the k. The items
(t, j), numbered t * k + j, are sorted by expert, then by token: counts[e] = items of expert e,
offsets[e] = counts[0] + ... + counts[e - 1], order = the items so sorted, and position says where each one
went: order[position[t, j]] = t * k + j.
`dispatch`: R[position[t, j]] = X[t]. `combine`: Y[t] = sum over j of weights[t, j] * R[position[t, j]].

Of equal logits the lower expert wins, NaN is higher than all: the result is the same every time. A block of
tokens counts its experts, a scan over the blocks says where each begins for each expert, and a block then
places its items. Nothing waits for the host, and no shape depends on the logits. Up to 256 experts, k up to
8; logits and rows bf16, fp16 or float32, weights float32. Not covered: gradients, expert capacities, dropped
tokens, biases.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from assay.tiles.kernel import Cost, Kernel, Unsupported, launches, need_dtype, need_few
from assay.tiles.launch import start
from assay.tiles.op import op

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
MOST_EXPERTS = 256
MOST_K = 8
TILE_BYTES = 8192
"""Logits of a block."""
MOST_ITEMS = 128
"""Of a block: placing compares each with each."""
MOST_IN_ALL = 2**30
"""Tokens times k, so that the last block's numbers fit in 32 bits too."""
CHUNK = 1024
"""Blocks that are scanned at once."""


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
def _keys(x, column):
    """Whole numbers in the order of the logits, no two alike: 8 bits below the value tell the column."""
    WIDE: tl.constexpr = x.dtype == tl.float32
    x = tl.where(x == 0, 0.0, tl.where(x == x, x, float("nan"))).to(x.dtype)
    bits = x.to(tl.int32 if WIDE else tl.int16, bitcast=True).to(tl.int32)
    bits ^= (bits >> 31) & (0x7FFFFFFF if WIDE else 0x7FFF)
    return bits.to(tl.int64 if WIDE else tl.int32) * 256 + (255 - column)


@triton.jit
def _values(keys, DTYPE: tl.constexpr):
    WIDE: tl.constexpr = keys.dtype == tl.int64
    bits = (keys >> 8).to(tl.int32)
    bits ^= (bits >> 31) & (0x7FFFFFFF if WIDE else 0x7FFF)
    return bits.to(tl.int32 if WIDE else tl.int16).to(DTYPE, bitcast=True).to(tl.float32)


@triton.jit
def route_kernel(
    logits, weights, chosen, counts, begins, tokens, experts, row_step,
    K: tl.constexpr, K_COLS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """The k highest of each row, their weights, and how many items of each expert this block has."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLS)[None, :]
    slot = tl.arange(0, K_COLS)[None, :]
    inside = (row < tokens) & (column < experts)
    x = tl.load(logits + row.to(tl.int64) * row_step + column, inside, other=0.0)
    LOWEST: tl.constexpr = -(2**40) if x.dtype == tl.float32 else -(2**31)
    keys = tl.where(column < experts, _keys(x, column), LOWEST)
    best = tl.zeros([ROWS, K_COLS], keys.dtype)
    for j in tl.static_range(K):
        top = tl.max(keys, 1)[:, None]
        best = tl.where(slot == j, top, best)
        keys = tl.where(keys == top, LOWEST, keys)
    scores = tl.where(slot < K, _values(best, x.dtype), float("-inf"))
    scores = tl.exp(scores - tl.max(scores, 1)[:, None])
    at = row * K + slot
    real = (row < tokens) & (slot < K)
    tl.store(weights + at, scores / tl.sum(scores, 1)[:, None], real)
    tl.store(chosen + at, 255 - (best & 255).to(tl.int32), real)
    mine = tl.sum(((keys == LOWEST) & inside).to(tl.int32), 0)
    expert = tl.arange(0, COLS)
    tl.store(begins + expert.to(tl.int64) * tl.num_programs(0) + tl.program_id(0), mine, expert < experts)
    tl.atomic_add(counts + expert, mine, (expert < experts) & (mine > 0), sem="relaxed")


@triton.jit
def scan_kernel(counts, offsets, begins, blocks, experts, COLS: tl.constexpr, CHUNK: tl.constexpr):
    """Turns the counts of one expert's blocks into where each block begins."""
    me = tl.program_id(0)
    expert = tl.arange(0, COLS)
    before = tl.load(counts + expert, expert < me, other=0)
    begin = tl.sum(before, 0)
    tl.store(offsets + me, begin)
    begins += me.to(tl.int64) * blocks
    for first in range(0, blocks, CHUNK):
        block = first + tl.arange(0, CHUNK)
        n = tl.load(begins + block, block < blocks, other=0)
        tl.store(begins + block, begin + tl.cumsum(n, 0) - n, block < blocks)
        begin += tl.sum(n, 0)
    tl.store(offsets + experts, begin, me == experts - 1)


@triton.jit
def place_kernel(
    chosen, begins, order, position, tokens,
    K: tl.constexpr, K_COLS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """An item comes after those of its block that have the same expert and a lower number."""
    place = tl.arange(0, ROWS * K_COLS)
    item = (tl.program_id(0) * ROWS + place // K_COLS) * K + place % K_COLS
    real = (place % K_COLS < K) & (item < tokens * K)
    expert = tl.load(chosen + item, real, other=-1)
    is_before = (expert[None, :] == expert[:, None]) & (place[None, :] < place[:, None])
    rank = tl.sum(is_before.to(tl.int32), 1)
    begin = tl.load(begins + expert.to(tl.int64) * tl.num_programs(0) + tl.program_id(0), real)
    tl.store(position + item, begin + rank, real)
    tl.store(order + begin + rank, item, real)


@triton.jit
def dispatch_kernel(x, position, out, n, x_step, K: tl.constexpr, COLS: tl.constexpr):
    """Reads a part of a row once and writes it k times."""
    row = tl.program_id(0) // tl.cdiv(n, COLS)
    column = (tl.program_id(0) % tl.cdiv(n, COLS)) * COLS + tl.arange(0, COLS)
    values = tl.load(x + row.to(tl.int64) * x_step + column, column < n)
    for j in tl.static_range(K):
        at = tl.load(position + row * K + j).to(tl.int64)
        tl.store(out + at * n + column, values, column < n)


@triton.jit
def combine_kernel(rows, position, weights, out, n, rows_step, K: tl.constexpr, COLS: tl.constexpr):
    row = tl.program_id(0) // tl.cdiv(n, COLS)
    column = (tl.program_id(0) % tl.cdiv(n, COLS)) * COLS + tl.arange(0, COLS)
    total = tl.zeros([COLS], tl.float32)
    for j in tl.static_range(K):
        at = tl.load(position + row * K + j).to(tl.int64)
        values = tl.load(rows + at * rows_step + column, column < n).to(tl.float32)
        total += tl.load(weights + row * K + j) * values
    tl.store(out + row.to(tl.int64) * n + column, total, column < n)


def reference(logits: torch.Tensor, k: int) -> Route:
    ranked = logits.float().sort(dim=1, descending=True, stable=True)
    experts = ranked.indices[:, :k].contiguous()
    order = experts.flatten().sort(stable=True).indices
    position = torch.empty_like(order)
    position[order] = torch.arange(order.numel(), device=order.device)
    each = torch.arange(logits.shape[1], device=logits.device)
    counts = (experts.flatten() == each[:, None]).sum(1)
    offsets = torch.cat((counts.new_zeros(1), counts.cumsum(0)))
    whole = (experts, order, position.view(experts.shape), counts, offsets)
    return Route(ranked.values[:, :k].softmax(1), *(tensor.int() for tensor in whole))


def dispatch_reference(x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    out = x.new_empty(position.numel(), x.shape[1])
    out[position.flatten().long()] = x.repeat_interleave(position.shape[1], 0)
    return out


def combine_reference(rows: torch.Tensor, position: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return (rows.float()[position.long()] * weights[:, :, None]).sum(1).to(rows.dtype)


@op("topk_route")
def _route_op(logits: torch.Tensor, k: int) -> list[torch.Tensor]:
    tokens, experts = logits.shape
    weights, chosen, order, position, counts, offsets = made = _route_shapes(logits, k)
    counts.zero_()
    if tokens == 0:
        offsets.zero_()
        return made
    logits = _dense_rows(logits)
    cols, k_cols = triton.next_power_of_2(experts), triton.next_power_of_2(k)
    high = min(TILE_BYTES // (cols * logits.element_size()), MOST_ITEMS // k_cols)
    blocks = triton.cdiv(tokens, high)
    begins = counts.new_empty(experts * blocks)
    arguments = (logits, weights, chosen, counts, begins, tokens, experts, logits.stride(0))
    sizes = {"K": k, "K_COLS": k_cols, "ROWS": high, "num_warps": 4}
    start(route_kernel, (blocks,), arguments, logits, COLS=cols, **sizes)
    arguments = (counts, offsets, begins, blocks, experts)
    start(scan_kernel, (experts,), arguments, logits, COLS=cols, CHUNK=CHUNK, num_warps=4)
    start(place_kernel, (blocks,), (chosen, begins, order, position, tokens), logits, **sizes)
    return made


@_route_op.register_fake
def _route_shapes(logits: torch.Tensor, k: int) -> list[torch.Tensor]:
    tokens, experts = logits.shape
    shapes = ((tokens, k), (tokens * k,), (tokens, k), (experts,), (experts + 1,))
    whole = [logits.new_empty(shape, dtype=torch.int32) for shape in shapes]
    return [logits.new_empty((tokens, k), dtype=torch.float32), *whole]


def _dense_rows(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.stride(1) == 1 else tensor.contiguous()


def _columns(n: int) -> int:
    """Of one program: two vectors of 16 bytes for each of its threads."""
    return min(triton.next_power_of_2(n), 2048)


@op("dispatch")
def _dispatch_op(x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    out = _dispatch_shape(x, position)
    if out.numel() == 0:
        return out
    x, position = _dense_rows(x), position.contiguous()
    tokens, n = x.shape
    cols = _columns(n)
    grid = (tokens * triton.cdiv(n, cols),)
    arguments = (x, position, out, n, x.stride(0))
    start(dispatch_kernel, grid, arguments, x, K=position.shape[1], COLS=cols, num_warps=4)
    return out


@_dispatch_op.register_fake
def _dispatch_shape(x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    return x.new_empty((position.shape[0] * position.shape[1], x.shape[1]))


@op("combine")
def _combine_op(rows: torch.Tensor, position: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    out = _combine_shape(rows, position, weights)
    if out.numel() == 0:
        return out
    rows, position, weights = _dense_rows(rows), position.contiguous(), weights.contiguous()
    tokens, n = out.shape
    cols = _columns(n)
    grid = (tokens * triton.cdiv(n, cols),)
    arguments = (rows, position, weights, out, n, rows.stride(0))
    start(combine_kernel, grid, arguments, rows, K=position.shape[1], COLS=cols, num_warps=4)
    return out


@_combine_op.register_fake
def _combine_shape(rows: torch.Tensor, position: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return rows.new_empty((position.shape[0], rows.shape[1]))


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


def dispatch(x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """Each row of x (tokens, n) k times, sorted by expert; `position` must be a route's, unchecked."""
    _check_rows(x, position)
    if x.shape[0] != position.shape[0]:
        raise Unsupported(f"{x.shape[0]} rows, but positions of {position.shape[0]} tokens")
    return _dispatch_op(x, position) if launches(x, position) else dispatch_reference(x, position)


def combine(rows: torch.Tensor, position: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The weighted sum of each token's k rows; `position` must be a route's, unchecked."""
    _check_rows(rows, position)
    need_dtype(weights, of=(torch.float32,))
    if weights.shape != position.shape:
        raise Unsupported(f"shapes differ: weights {tuple(weights.shape)}, positions {tuple(position.shape)}")
    if rows.shape[0] != position.numel():
        raise Unsupported(f"{rows.shape[0]} rows, but {position.numel()} positions")
    made = _combine_op if launches(rows, position, weights) else combine_reference
    return made(rows, position, weights)


def _check_rows(rows: torch.Tensor, position: torch.Tensor) -> None:
    need_dtype(rows, of=DTYPES)
    need_dtype(position, of=(torch.int32,))
    if rows.dim() != 2 or rows.shape[1] > MOST_IN_ALL:
        raise Unsupported(f"rows of shape {tuple(rows.shape)}: give (rows, n), n up to 2^30")
    if position.dim() != 2 or not 0 < position.shape[1] <= MOST_K or position.numel() > MOST_IN_ALL:
        shape = tuple(position.shape)
        raise Unsupported(
            f"positions of shape {shape}: give (tokens, k), k from 1 to {MOST_K}, up to 2^30 in all"
        )


def inputs(
    *, tokens: int, experts: int, k: int, dtype: torch.dtype = torch.bfloat16, device: str = "cuda"
) -> tuple[Any, ...]:
    return torch.randn(tokens, experts, device=device).to(dtype), k


def _inputs_with_rows(
    *, n: int, is_back: bool, dtype: torch.dtype = torch.bfloat16, device: str = "cuda", **sizes: int
) -> tuple[torch.Tensor, ...]:
    route = topk_route(*inputs(**sizes, dtype=dtype, device=device))
    tokens, k = route.position.shape
    rows = torch.randn(tokens * k if is_back else tokens, n, device=device).to(dtype)
    return (rows, route.position, route.weights) if is_back else (rows, route.position)


def cost(*, tokens: int, experts: int, k: int, dtype: torch.dtype = torch.bfloat16) -> Cost:
    """Logits in; weights, experts, order and position out; comparisons are counted as operations."""
    size_bytes = tokens * experts * dtype.itemsize + 16 * tokens * k + 4 * (2 * experts + 1)
    return Cost(size_bytes=size_bytes, flops=tokens * experts * k)


def _cost_of_rows(
    *, tokens: int, experts: int, k: int, n: int, dtype: torch.dtype = torch.bfloat16, is_back: bool
) -> Cost:
    """One row and its k copies, and the positions; on the way back the weights too."""
    size_bytes = tokens * (k + 1) * n * dtype.itemsize + (8 if is_back else 4) * tokens * k
    return Cost(size_bytes=size_bytes, flops=2 * tokens * k * n if is_back else 0)


ROW_CASES = (
    {"tokens": 9, "experts": 4, "k": 2, "n": 64},
    {"tokens": 5, "experts": 8, "k": 3, "n": 1100},
    {"tokens": 70, "experts": 5, "k": 1, "n": 33},
)
ROW_SIZES = (
    {"tokens": 8192, "experts": 8, "k": 2, "n": 4096},
    {"tokens": 8192, "experts": 256, "k": 8, "n": 7168},
    {"tokens": 64, "experts": 256, "k": 8, "n": 7168},
)
ENTRIES = (
    Kernel(
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
    ),
    Kernel(
        name="dispatch",
        formula="R[position[t, j]] = X[t]",
        run=dispatch,
        reference=dispatch_reference,
        inputs=partial(_inputs_with_rows, is_back=False),
        cases=ROW_CASES,
        sizes=ROW_SIZES,
        cost=partial(_cost_of_rows, is_back=False),
    ),
    Kernel(
        name="combine",
        formula="Y[t] = sum over j of weights[t, j] * R[position[t, j]]",
        run=combine,
        reference=combine_reference,
        inputs=partial(_inputs_with_rows, is_back=True),
        cases=ROW_CASES,
        sizes=ROW_SIZES,
        cost=partial(_cost_of_rows, is_back=True),
    ),
)
