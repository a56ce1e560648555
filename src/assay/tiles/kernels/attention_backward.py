"""The gradients of attention, from what the forward pass kept: its outputs and the logarithms of its sums.

    P = exp2(scale Q K^T - L)    dP = dO V^T    dS = P (dP - rowsum(dO O))
    dV = P^T dO                  dK = dS^T Q    dQ = dS K

One kernel computes the row sums; one walks over the queries for a block of keys, keeps dK and dV in registers
and adds its part of dQ to float32 sums in memory; one makes dQ of them. Sums are added in another order
every time: who asks torch for deterministic algorithms gets two walks (attention_two_walks.py).

A step has the rows of its queries, and what else belongs to those of the step before (gradients of outputs,
logarithms, row sums): while the last products of those run, the next scores are begun. dS passes from one
consumer to the other by way of shared memory, and each computes half of dQ: half of its columns, or of
its queries.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
import triton
import triton.language as tl

from assay.tiles.assembler import narrowed, widened
from assay.tiles.hopper import fence_async_shared, gl, jit, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from assay.tiles.kernels.attention import together
from assay.tiles.kernels.attention_two_walks import (
    LOG2_E,
    KeyGradient,
    as_operand,
    key_gradient,
    query_gradient,
)
from assay.tiles.launch import aligned, describe, launch, multiprocessors, start
from assay.tiles.op import op
from assay.tiles.pipeline import pipeline

_NAMES = ("q", "do", "k", "v", "dq", "dk", "dv")
STEPS = {64: {"BM": 128, "stages": 3}, 128: {"BM": 64, "stages": 3}}
"""What registers and shared memory hold beside a block of keys, by head size."""
FEWEST_QUERIES = 128
"""Sums of dQ have whole blocks of as many."""
TOGETHER = 11
"""Heads that are walked together where tiles differ in length. With twelve, or a power of two, some programs
of an H200 get long tiles round after round, up to 1.3 times as much as the mean."""
BALANCED_FROM = 16384
"""Queries from which walking over all heads at once balances better."""
ROWS = 32


@triton.jit
def prepare_kernel(
    do, o, sums, kept, dq, S, padded, D: tl.constexpr, ROWS: tl.constexpr, HAS_SUMS: tl.constexpr
):
    """For each query its logarithm and rowsum(dO O), without a gap up to whole tiles: a query that is not
    there, or sees nothing, has no weights. And zeros where dQ is summed."""
    head = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = head * S * D + row[:, None] * D + tl.arange(0, D)[None, :]
    inside = row[:, None] < S
    product = tl.load(do + at, inside, other=0.0).to(tl.float32) * tl.load(o + at, inside, other=0.0)
    logarithm = tl.load(sums + head * S + row, row < S, other=float("inf"))
    logarithm = tl.where(logarithm == float("-inf"), float("inf"), logarithm)
    tl.store(kept + head * padded + row, logarithm)
    tl.store(kept + (tl.num_programs(1) + head) * padded + row, tl.sum(product, 1))
    if HAS_SUMS:
        at = (head * padded + row[:, None]) * D + tl.arange(0, D)[None, :]
        tl.store(dq + at, tl.zeros([ROWS, D], tl.float32))


@triton.jit
def finish_kernel(sums, dq, S, scale, D: tl.constexpr):
    """64 rows of dQ from sums that lie as `Gradients.add` leaves them."""
    block, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    first = (head * tl.num_programs(0) + block) * 64 * D
    value = tl.load(sums + first + tl.arange(0, 64 * D)) * scale
    value = tl.reshape(value, [D // 64, 8, 4, 8, 4, 2, 2])
    value = tl.reshape(tl.permute(value, [2, 5, 3, 0, 1, 4, 6]), [64, D])
    row = block * 64 + tl.arange(0, 64)
    at = head * S * D + row[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(dq + at, value.to(dq.dtype.element_ty), row[:, None] < S)


@dataclass(frozen=True)
class Gradients(KeyGradient):
    """g: q, do, k, v, dk, dv, S, T, kv_heads, group, scale in base 2, scale, rows, sums of dQ, together."""

    stages: int = 3
    is_ragged: bool = False
    """The last block of keys is not whole."""
    is_askew: bool = False
    """Causal, and a block of keys does not begin where one of queries does."""
    holds: ClassVar[bool] = True
    tail: ClassVar[bool] = True

    @property
    def heads(self) -> int:
        """Steps whose queries see the keys in part, and the one that begins the first of them."""
        return (128 // self.BM + self.is_askew) * self.group + 1 if self.is_causal else 1

    @property
    def layout(self) -> gl.NVMMADistributedLayout:
        """Of gradients."""
        return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, self.D, 16])

    @property
    def score_layout(self) -> gl.NVMMADistributedLayout:
        return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, self.BM, 16])

    @jit
    def room(w: gl.constexpr, g):
        q = gl.allocate_shared_memory(g[0].dtype, [w.stages, 1, w.BM, w.D], g[0].layout)
        do = gl.allocate_shared_memory(g[1].dtype, [w.stages, 1, w.BM, w.D], g[1].layout)
        k = gl.allocate_shared_memory(g[2].dtype, [2, 1, 64, w.D], g[2].layout)
        v = gl.allocate_shared_memory(g[3].dtype, [2, 1, 64, w.D], g[3].layout)
        rows = gl.allocate_shared_memory(gl.float32, [2 * w.stages, w.BM], g[12].layout)
        layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, w.BM], g[0].dtype)
        ds = gl.allocate_shared_memory(g[0].dtype, [4, 64, w.BM], layout)
        shared = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
        for s in gl.static_range(2):
            mbarrier.init(shared.index(s), count=2)
        return q, do, k, v, rows, ds, shared

    @jit
    def steps(w: gl.constexpr, g, at):
        return (gl.cdiv(g[6], w.BM) - w.skipped(w, g, at)) * w.group + 1

    @jit
    def queries(w: gl.constexpr, g, at, k):
        return at[1] * w.group + k % w.group, (w.skipped(w, g, at) + k // w.group) * w.BM

    @jit
    def load(w: gl.constexpr, g, at, k, room, slot, bar):
        """The first step's gradients and the last step's queries are there twice, for nothing."""
        mbarrier.expect(bar, 2 * g[0].block_type.nbytes + 2 * g[12].block_type.nbytes)
        head, first = w.queries(w, g, at, min(k, w.steps(w, g, at) - 2))
        tma.async_copy_global_to_shared(g[0], [head, first, 0], bar, room[0].index(slot))
        head, first = w.queries(w, g, at, max(k - 1, 0))
        tma.async_copy_global_to_shared(g[1], [head, first, 0], bar, room[1].index(slot))
        padded = gl.cdiv(g[6], 128) * 128
        for part in gl.static_range(2):
            place = (part * g[8] * w.group + head) * padded + first
            tma.async_copy_global_to_shared(g[12], [place], bar, room[4].index(2 * slot + part))

    @jit
    def scores(w: gl.constexpr, part: gl.constexpr, room, slot, k):
        """In flight. k >> 24 is zero, which the compiler does not know: addresses of keys and values would
        else be kept in registers from step to step, and there are none left."""
        zeros = gl.zeros([64, w.BM], gl.float32, w.score_layout)
        queries = room[0].index(slot).reshape([w.BM, w.D])
        keys = room[2].index(part + (k >> 24)).reshape([64, w.D])
        return warpgroup_mma(keys, queries.permute((1, 0)), zeros, use_acc=False, is_async=True)

    @jit
    def first(w: gl.constexpr, g, at, part: gl.constexpr, room, slot):
        zeros = gl.zeros([64, w.D], gl.float32, w.layout)
        return zeros, zeros, warpgroup_mma_wait(0, (w.scores(w, part, room, slot, 0),))

    @jit
    def step(w: gl.constexpr, g, at, part: gl.constexpr, k, state, room, slot, is_head: gl.constexpr):
        dk, dv, dq = w.gradients(w, g, at, part, k, state, room, slot, is_head)
        dq = warpgroup_mma_wait(1, (dq,))
        s = w.scores(w, part, room, slot, k)
        w.add(w, g, at, part, k, dq)
        dk = warpgroup_mma_wait(1, (dk,))
        return dk, dv, warpgroup_mma_wait(0, (s,))

    @jit
    def last(w: gl.constexpr, g, at, part: gl.constexpr, state, room, slot):
        k = w.steps(w, g, at) - 1
        dk, dv, dq = w.gradients(w, g, at, part, k, state, room, slot, w.is_causal)
        dq, dk = warpgroup_mma_wait(0, (dq, dk))
        w.add(w, g, at, part, k, dq)
        for more in range(k + 1, k // 4 * 4 + 5):  # nobody reads keys any more, and the next tile begins anew
            w.meet(room, more)
        return dk, dv

    @jit
    def gradients(w: gl.constexpr, g, at, part: gl.constexpr, k, state, room, slot, is_head: gl.constexpr):
        """Of the queries before; dK and dQ are in flight."""
        dk, dv, s = state
        do = room[1].index(slot).reshape([w.BM, w.D])
        values = room[3].index(part + (k >> 24)).reshape([64, w.D])
        zeros = gl.zeros([64, w.BM], gl.float32, w.score_layout)
        dp = warpgroup_mma(values, do.permute((1, 0)), zeros, use_acc=False, is_async=True)
        gl.thread_barrier()  # else ptxas begins dP after the exponentials, which wait for what is loaded next
        sums = room[4].index(2 * slot).load(gl.SliceLayout(0, w.score_layout))
        p = gl.exp2(s * g[10] - gl.expand_dims(sums, 0))
        if is_head or w.is_ragged:
            p = w.masked(w, g, at, part, k, p)
        narrow = narrowed(p, g[0].dtype)
        weights = as_operand(narrow, g[0].dtype, w.D)
        dv = warpgroup_mma(weights, do, dv, is_async=True)
        dp = warpgroup_mma_wait(1, (dp,))
        delta = room[4].index(2 * slot + 1).load(gl.SliceLayout(0, w.score_layout))
        ds = widened(narrow, g[0].dtype) * (dp - gl.expand_dims(delta, 0))
        q = room[0].index((slot + w.stages - 1) % w.stages).reshape([w.BM, w.D])
        operand = as_operand(ds, g[0].dtype, w.D)
        room[5].index(k % 2 * 2 + part).store(ds.to(g[0].dtype))
        fence_async_shared()
        w.meet(room, k)
        dv = warpgroup_mma_wait(0, (dv,))
        dq = w.query_gradient(w, part, room, k)
        dk = warpgroup_mma(operand, q, dk, is_async=True)
        return dk, dv, dq

    @jit
    def masked(w: gl.constexpr, g, at, part: gl.constexpr, k, p):
        """No weight where there is no key, and none for a key that a query does not see."""
        key = gl.expand_dims(at[0] + part * 64 + gl.arange(0, 64, gl.SliceLayout(1, w.score_layout)), 1)
        seen = key < g[7]
        if w.is_causal:
            _, first = w.queries(w, g, at, k - 1)
            query = gl.expand_dims(first + gl.arange(0, w.BM, gl.SliceLayout(0, w.score_layout)), 0)
            seen = seen & (key <= query + g[7] - g[6])
        return gl.where(seen, p, 0.0)

    @jit
    def meet(room, k):
        """Both consumers are here, for the k-th time."""
        mbarrier.arrive(room[6].index(k % 2), count=1)
        mbarrier.wait(room[6].index(k % 2), ((k - 1) // 2) & 1)

    @jit
    def query_gradient(w: gl.constexpr, part: gl.constexpr, room, k):
        """64 queries and 64 columns of it, in flight."""
        dq = gl.zeros([64, 64], gl.float32, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16]))
        for half in gl.static_range(2):
            ds, keys = room[5].index(k % 2 * 2 + half), room[2].index(half + (k >> 24)).reshape([64, w.D])
            if w.BM == 128:
                ds = ds.slice(part * 64, 64, 1)
            if w.D == 128:
                keys = keys.slice(part * 64, 64, 1)
            dq = warpgroup_mma(ds.permute((1, 0)), keys, dq, use_acc=half > 0, is_async=True)
        return dq

    @jit
    def add(w: gl.constexpr, g, at, part: gl.constexpr, k, dq):
        """Where four values of a thread, and those of its neighbours, lie side by side (`finish_kernel`)."""
        flat: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
        head, first = w.queries(w, g, at, k - 1)
        block = ((head * gl.cdiv(g[6], 128) * 128 + first) // 64) * (w.D // 64) + part
        dq = dq.reshape([4, 2, 8, 8, 4, 2]).permute((3, 0, 2, 4, 1, 5)).reshape([4096])
        place = block * 4096 + gl.arange(0, 4096, flat)
        gl.atomic_add(g[13] + place, gl.convert_layout(dq, flat), sem="relaxed")


@jit
def gradients_kernel(
    q, do, k, v, dk, dv, S, T, kv_heads, group, scale2, scale, rows, sums, together, w: gl.constexpr
):
    pipeline(w, (q, do, k, v, dk, dv, S, T, kv_heads, group, scale2, scale, rows, sums, together))


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
    grid, arguments = (padded // ROWS, heads), (do, o, sums, kept, sums_of_dq, s, padded)
    start(prepare_kernel, grid, arguments, q, D=d, ROWS=ROWS, HAS_SUMS=at_once)
    if at_once:
        _gradients(flat, kept, sums_of_dq, is_causal, scale)
        start(finish_kernel, (padded // 64, heads), (sums_of_dq, dq, s, scale), q, D=d)
    else:
        query_gradient(flat, kept, is_causal, scale)
        key_gradient(flat, kept, is_causal, scale)
    return dq, dk, dv


def is_at_once(heads: int, s: int, d: int) -> bool:
    """Not for few queries, whose sums of dQ would be far larger than dQ."""
    if torch.are_deterministic_algorithms_enabled():
        return False
    return s >= FEWEST_QUERIES and heads * triton.cdiv(s, 128) * 128 * d < 2**31


@functools.cache
def choose(d: int, s: int, t: int, group: int, is_causal: bool) -> Gradients:
    steps = STEPS[d]
    is_askew = is_causal and (t - s) % steps["BM"] != 0
    return Gradients(
        D=d, is_causal=is_causal, is_ragged=t % 128 != 0, is_askew=is_askew, group=group, **steps
    )


def _gradients(
    flat: Mapping[str, torch.Tensor], kept: torch.Tensor, sums: torch.Tensor, is_causal: bool, scale: float
) -> None:
    (heads, s, d), (kv_heads, t, _) = flat["q"].shape, flat["k"].shape
    group = heads // kv_heads
    work = choose(d, s, t, group, is_causal)
    rows = {"q": work.BM, "do": work.BM, "k": 64, "v": 64, "dk": 64, "dv": 64}
    described = [describe(flat[name], [1, n, d]) for name, n in rows.items()]
    close = max((TOGETHER if is_causal and s < BALANCED_FROM else together(flat["q"], is_causal)) // group, 1)
    sizes = s, t, kv_heads, group, scale * LOG2_E, scale
    arguments = (*described, *sizes, describe(kept.view(-1), [work.BM]), sums, close)
    programs = min(triton.cdiv(t, 128) * kv_heads, multiprocessors(kept))
    launch(gradients_kernel, programs, arguments, work, kept)


@attention_backward.register_fake
def _(do, q, k, v, o, sums, is_causal, scale):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
