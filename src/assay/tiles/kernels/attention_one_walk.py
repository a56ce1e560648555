"""The gradients of attention in one walk over the queries, for a block of keys.

    P = exp2(scale Q K^T - L)    dP = dO V^T    dS = P (dP - rowsum(dO O))
    dV = P^T dO                  dK = dS^T Q    dQ = dS K

dK and dV stay in registers, and its part of dQ is added to float32 sums in memory.

A step has the rows of its queries, and what else belongs to those of the step before (gradients of outputs,
logarithms, row sums): while the last products of those run, the next scores are begun. dS passes from one
consumer to the other by way of shared memory, and each computes half of dQ: half of its columns, or of
its queries.

The walk begins while the kernel before it ends, and the one behind it while it ends. If causal, tiles differ
in length: attention_causal_walk.py.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import triton

from assay.tiles.assembler import let_next_begin, narrowed, wait_for_last, widened
from assay.tiles.hopper import fence_async_shared, gl, jit, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from assay.tiles.kernels.attention import together
from assay.tiles.kernels.attention_two_walks import LOG2_E, KeyGradient, as_operand
from assay.tiles.launch import describe, launch, multiprocessors
from assay.tiles.pipeline import pipeline

STEPS = {64: {"BM": 128, "stages": 3}, 128: {"BM": 64, "stages": 3}}
"""What registers and shared memory hold beside a block of keys, by head size."""


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
        let_next_begin()
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
        if k == 0:
            wait_for_last()  # it computes the row sums
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


@functools.cache
def choose(d: int, t: int, group: int) -> Gradients:
    return Gradients(D=d, is_ragged=t % 128 != 0, group=group, **STEPS[d])


def gradients(
    flat: Mapping[str, torch.Tensor], kept: torch.Tensor, sums_of_dq: torch.Tensor, scale: float
) -> None:
    """dK, dV and the sums of dQ, not causal."""
    (heads, _, d), (kv_heads, t, _) = flat["q"].shape, flat["k"].shape
    group = heads // kv_heads
    work = choose(d, t, group)
    close = max(together(flat["q"], is_causal=False) // group, 1)
    arguments = (*arguments_of(work, flat, kept, sums_of_dq, scale), close)
    programs = min(triton.cdiv(t, 128) * kv_heads, multiprocessors(kept))
    launch(gradients_kernel, programs, arguments, work, kept, waits_itself=True)


def arguments_of(
    work: Gradients,
    flat: Mapping[str, torch.Tensor],
    kept: torch.Tensor,
    sums_of_dq: torch.Tensor,
    scale: float,
) -> tuple[Any, ...]:
    """All but the order of tiles."""
    (heads, s, d), (kv_heads, t, _) = flat["q"].shape, flat["k"].shape
    rows = {"q": work.BM, "do": work.BM, "k": 64, "v": 64, "dk": 64, "dv": 64}
    described = [describe(flat[name], [1, n, d]) for name, n in rows.items()]
    sizes = s, t, kv_heads, heads // kv_heads, scale * LOG2_E, scale
    return (*described, *sizes, describe(kept.view(-1), [work.BM]), sums_of_dq)
