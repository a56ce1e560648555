"""The gradients of attention, from what the forward pass kept: its outputs and the logarithms of its sums.

One kernel computes the row sums; one walks over the queries for a block of keys and adds its part of dQ to
float32 sums in memory (attention_one_walk.py); one makes dQ of them. Sums are added in another order every
time: who asks torch for deterministic algorithms gets two walks (attention_two_walks.py).

The walk begins while the first of them ends, and the last one while the walk does; each waits itself before
it touches what the one before it writes. Everything else it reads was there before the first of them began,
which is launched as any other.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from assay.tiles.kernels.attention_causal_walk import causal_gradients
from assay.tiles.kernels.attention_one_walk import gradients
from assay.tiles.kernels.attention_two_walks import key_gradient, query_gradient
from assay.tiles.kernels.softmax import LOG2_E
from assay.tiles.launch import aligned, start
from assay.tiles.op import op
from assay.tiles.overlap import let_next_begin, wait_for_last

_NAMES = ("q", "do", "k", "v", "dq", "dk", "dv")
FEWEST_QUERIES = 128
"""Sums of dQ have whole blocks of as many."""
ROWS = 32


@triton.jit
def prepare_kernel(
    do, o, sums, kept, dq, order, tiles, S, padded,
    D: tl.constexpr, ROWS: tl.constexpr, HAS_SUMS: tl.constexpr,
):  # fmt: skip
    """For each query its logarithm, to base 2, and rowsum(dO O), without a gap up to whole tiles: one that is
    not there, or sees nothing, has no weights. And zeros where dQ is summed, and the order of tiles for a
    walk that begins meanwhile."""
    head = tl.program_id(1).to(tl.int64)
    if HAS_SUMS:
        let_next_begin()
    if order is not None:
        _write_order(order, tiles, ROWS)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = head * S * D + row[:, None] * D + tl.arange(0, D)[None, :]
    inside = row[:, None] < S
    product = tl.load(do + at, inside, other=0.0).to(tl.float32) * tl.load(o + at, inside, other=0.0)
    logarithm = tl.load(sums + head * S + row, row < S, other=float("inf")) * LOG2_E
    logarithm = tl.where(logarithm == float("-inf"), float("inf"), logarithm)
    tl.store(kept + head * padded + row, logarithm)
    tl.store(kept + (tl.num_programs(1) + head) * padded + row, tl.sum(product, 1))
    if HAS_SUMS:
        at = (head * padded + row[:, None]) * D + tl.arange(0, D)[None, :]
        tl.store(dq + at, tl.zeros([ROWS, D], tl.float32))


@triton.jit
def _write_order(order, tiles, ROWS: tl.constexpr):
    """The numbers of tiles, and of the end, four times each, and zeros behind them, of which one is the
    counter."""
    program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    programs = tl.num_programs(1) * tl.num_programs(0)
    for first in range(program * ROWS, tiles + 2, programs * ROWS):
        at = first * 4 + tl.arange(0, ROWS * 4)
        number = at // 4
        tl.store(order + at, tl.where(number <= tiles, number, 0), number < tiles + 2)


@triton.jit
def finish_kernel(sums, dq, S, scale, D: tl.constexpr):
    """64 rows of dQ from sums that lie as `Gradients.add` leaves them."""
    block, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    first = (head * tl.num_programs(0) + block) * 64 * D
    wait_for_last()
    value = tl.load(sums + first + tl.arange(0, 64 * D)) * scale
    value = tl.reshape(value, [D // 64, 8, 4, 8, 4, 2, 2])
    value = tl.reshape(tl.permute(value, [2, 5, 3, 0, 1, 4, 6]), [64, D])
    row = block * 64 + tl.arange(0, 64)
    at = head * S * D + row[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(dq + at, value.to(dq.dtype.element_ty), row[:, None] < S)


@op("attention_backward")
def attention_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    sums: torch.Tensor,
    is_causal: bool,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dQ, dK, dV of contiguous tensors (batch, heads, length, D)."""
    do, q, k, v = (aligned(x) for x in (do, q, k, v))
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    flat = {name: x.view(-1, *x.shape[2:]) for name, x in zip(_NAMES, (q, do, k, v, dq, dk, dv), strict=True)}
    heads, s, d = flat["q"].shape
    padded = triton.cdiv(s, 128) * 128
    kept = q.new_empty(2, heads, padded, dtype=torch.float32)
    at_once = is_at_once(heads, s, d)
    sums_of_dq = q.new_empty(heads * padded * d if at_once else 0, dtype=torch.float32)
    tiles = triton.cdiv(flat["k"].shape[1], 128) * flat["k"].shape[0] if at_once and is_causal else 0
    order = q.new_empty(4 * (tiles + 2), dtype=torch.int32) if tiles else None
    grid, arguments = (padded // ROWS, heads), (do, o, sums, kept, sums_of_dq, order, tiles, s, padded)
    start(prepare_kernel, grid, arguments, q, D=d, ROWS=ROWS, HAS_SUMS=at_once)
    if not at_once:
        query_gradient(flat, kept, is_causal, scale)
        key_gradient(flat, kept, is_causal, scale)
        return dq, dk, dv
    if order is not None:
        causal_gradients(flat, kept, sums_of_dq, order, scale)
    else:
        gradients(flat, kept, sums_of_dq, scale)
    grid, arguments = (padded // 64, heads), (sums_of_dq, dq, s, scale)
    start(finish_kernel, grid, arguments, q, D=d, launch_pdl=True)
    return dq, dk, dv


def is_at_once(heads: int, s: int, d: int) -> bool:
    """Not for few queries, whose sums of dQ would be far larger than dQ."""
    if torch.are_deterministic_algorithms_enabled():
        return False
    return s >= FEWEST_QUERIES and heads * triton.cdiv(s, 128) * 128 * d < 2**31


@attention_backward.register_fake
def _(do, q, k, v, o, sums, is_causal, scale):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
