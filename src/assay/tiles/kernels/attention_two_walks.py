"""The gradients of attention that are the same every time.

    P = exp2(scale Q K^T - L)    dP = dO V^T    dS = P (dP - rowsum(dO O))
    dV = P^T dO                  dK = dS^T Q    dQ = dS K

One kernel walks over the queries for a block of keys and keeps dK and dV in registers, one over the keys for
a block of queries and keeps dQ. Scores are computed twice, and nothing is added by way of memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
import triton

from assay.tiles.assembler import narrowed, widened
from assay.tiles.hopper import fence_async_shared, gl, jit, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from assay.tiles.kernels.attention import Attention, together
from assay.tiles.launch import describe, launch, multiprocessors
from assay.tiles.pipeline import balanced, grouped, pipeline
from assay.tiles.work import Work

FEW_STAGES = {"stages": 2}
"""Beside keys, values and steps of 128 columns there is no room for more."""
LOG2_E = math.log2(math.e)


@jit
def as_operand(p, dtype: gl.constexpr, D: gl.constexpr):
    """Weights as the left side of a product."""
    out: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    return gl.convert_layout(p.to(dtype), gl.DotOperandLayout(0, out, 2))


@dataclass(frozen=True)
class QueryGradient(Attention):
    """g: q, k, v, dq, S, T, heads, group, scale in base 2, sums, together, do, row sums, scale."""

    stages: int = 4
    BN: int = 64
    tail: ClassVar[bool] = False
    entries: ClassVar[int] = 1

    @jit
    def room(w: gl.constexpr, g):
        q = gl.allocate_shared_memory(g[0].dtype, [2, 1, 64, w.D], g[0].layout)
        k = gl.allocate_shared_memory(g[1].dtype, [w.stages, 1, w.BN, w.D], g[1].layout)
        v = gl.allocate_shared_memory(g[2].dtype, [w.stages, 1, w.BN, w.D], g[2].layout)
        return q, k, v, gl.allocate_shared_memory(g[11].dtype, [2, 1, 64, w.D], g[11].layout)

    @jit
    def steps(w: gl.constexpr, g, at):
        return w.blocks(w, g, at)

    @jit
    def load(w: gl.constexpr, g, at, k, room, slot, bar):
        corner = [at[1] // g[7], (w.steps(w, g, at) - 1 - k) * w.BN, 0]
        mbarrier.expect(bar, 2 * g[1].block_type.nbytes)
        tma.async_copy_global_to_shared(g[1], corner, bar, room[1].index(slot))
        tma.async_copy_global_to_shared(g[2], corner, bar, room[2].index(slot))

    @jit
    def enter(w: gl.constexpr, g, at, room, bar):
        mbarrier.expect(bar, 4 * g[0].block_type.nbytes)
        for part in gl.static_range(2):
            corner = [at[1], at[0] + part * 64, 0]
            tma.async_copy_global_to_shared(g[0], corner, bar, room[0].index(part))
            tma.async_copy_global_to_shared(g[11], corner, bar, room[3].index(part))

    @jit
    def first(w: gl.constexpr, g, at, part: gl.constexpr, room, slot):
        first = at[1] * gl.cdiv(g[4], 128) * 128 + at[0] + part * 64
        query = first + gl.arange(0, 64, gl.SliceLayout(1, w.score_layout))
        state = gl.zeros([64, w.D], gl.float32, w.layout), gl.load(g[9] + query), gl.load(g[12] + query)
        return w.step(w, g, at, part, 0, state, room, slot, w.is_causal)

    @jit
    def step(w: gl.constexpr, g, at, part: gl.constexpr, k, state, room, slot, is_head: gl.constexpr):
        acc, sums, delta = state
        zeros = gl.zeros([64, w.BN], gl.float32, w.score_layout)
        keys = room[1].index(slot).reshape([w.BN, w.D])
        values = room[2].index(slot).reshape([w.BN, w.D])
        q, do = room[0].index(part).reshape([64, w.D]), room[3].index(part).reshape([64, w.D])
        s = warpgroup_mma(q, keys.permute((1, 0)), zeros, use_acc=False, is_async=True)
        dp = warpgroup_mma(do, values.permute((1, 0)), zeros, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(1, (s,))
        p = gl.exp2(s * g[8] - gl.expand_dims(sums, 1))
        if is_head:
            block = w.steps(w, g, at) - 1 - k
            key = gl.expand_dims(block * w.BN + gl.arange(0, w.BN, gl.SliceLayout(0, w.score_layout)), 0)
            query = gl.expand_dims(at[0] + part * 64 + gl.arange(0, 64, gl.SliceLayout(1, w.score_layout)), 1)
            p = gl.where(key <= query + g[5] - g[4], p, 0.0)
        dp = warpgroup_mma_wait(0, (dp,))
        ds = as_operand(p * (dp - gl.expand_dims(delta, 1)), g[0].dtype, w.D)
        return warpgroup_mma(ds, keys, acc), sums, delta

    @jit
    def last(w: gl.constexpr, g, at, part: gl.constexpr, state, room, slot):
        return state

    @jit
    def finish(w: gl.constexpr, g, at, part: gl.constexpr, state, room):
        room[0].index(part).reshape([64, w.D]).store((state[0] * g[13]).to(g[0].dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(g[3], [at[1], at[0] + part * 64, 0], room[0].index(part))
        tma.store_wait(0)


@dataclass(frozen=True)
class KeyGradient(Work):
    """g: q, do, k, v, dk, dv, S, T, kv_heads, group, scale in base 2, scale, sums, row sums, together."""

    stages: int = 4
    D: int = 128
    BM: int = 64
    """Queries of a step."""
    is_causal: bool = False
    group: int = 1
    """Heads of queries for one of keys, if causal."""
    holds: ClassVar[bool] = False
    entries: ClassVar[int] = 1

    @property
    def heads(self) -> int:
        """Steps whose queries see the keys in part."""
        return (128 // self.BM + 1) * self.group if self.is_causal else 1

    @jit
    def room(w: gl.constexpr, g):
        q = gl.allocate_shared_memory(g[0].dtype, [w.stages, 1, w.BM, w.D], g[0].layout)
        do = gl.allocate_shared_memory(g[1].dtype, [w.stages, 1, w.BM, w.D], g[1].layout)
        k = gl.allocate_shared_memory(g[2].dtype, [2, 1, 64, w.D], g[2].layout)
        v = gl.allocate_shared_memory(g[3].dtype, [2, 1, 64, w.D], g[3].layout)
        return q, do, k, v

    @jit
    def tiles(w: gl.constexpr, g):
        return gl.cdiv(g[7], 128) * g[8]

    @jit
    def place(w: gl.constexpr, g, t, n):
        if w.is_causal:
            t = balanced(t, n, w.tiles(w, g))
        head, block = grouped(t, g[8], gl.cdiv(g[7], 128), g[14])
        return block * 128, head

    @jit
    def skipped(w: gl.constexpr, g, at):
        """Blocks of queries that see none of the keys."""
        if w.is_causal:
            return max(at[0] + g[6] - g[7], 0) // w.BM
        return 0

    @jit
    def steps(w: gl.constexpr, g, at):
        return (gl.cdiv(g[6], w.BM) - w.skipped(w, g, at)) * g[9]

    @jit
    def queries(w: gl.constexpr, g, at, k):
        """Whose step k is: a head and its first query."""
        return at[1] * g[9] + k % g[9], (w.skipped(w, g, at) + k // g[9]) * w.BM

    @jit
    def enter(w: gl.constexpr, g, at, room, bar):
        mbarrier.expect(bar, 4 * g[2].block_type.nbytes)
        for part in gl.static_range(2):
            corner = [at[1], at[0] + part * 64, 0]
            tma.async_copy_global_to_shared(g[2], corner, bar, room[2].index(part))
            tma.async_copy_global_to_shared(g[3], corner, bar, room[3].index(part))

    @jit
    def load(w: gl.constexpr, g, at, k, room, slot, bar):
        head, first = w.queries(w, g, at, k)
        mbarrier.expect(bar, 2 * g[0].block_type.nbytes)
        tma.async_copy_global_to_shared(g[0], [head, first, 0], bar, room[0].index(slot))
        tma.async_copy_global_to_shared(g[1], [head, first, 0], bar, room[1].index(slot))

    @jit
    def first(w: gl.constexpr, g, at, part: gl.constexpr, room, slot):
        out: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, w.D, 16])
        state = gl.zeros([64, w.D], gl.float32, out), gl.zeros([64, w.D], gl.float32, out)
        return w.step(w, g, at, part, 0, state, room, slot, w.is_causal)

    @jit
    def step(w: gl.constexpr, g, at, part: gl.constexpr, k, state, room, slot, is_head: gl.constexpr):
        layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, w.BM, 16])
        dk, dv = state
        zeros = gl.zeros([64, w.BM], gl.float32, layout)
        q, do = room[0].index(slot).reshape([w.BM, w.D]), room[1].index(slot).reshape([w.BM, w.D])
        keys, values = room[2].index(part).reshape([64, w.D]), room[3].index(part).reshape([64, w.D])
        s = warpgroup_mma(keys, q.permute((1, 0)), zeros, use_acc=False, is_async=True)
        if w.D <= 64:  # beside wider gradients, registers do not hold both
            dp = warpgroup_mma(values, do.permute((1, 0)), zeros, use_acc=False, is_async=True)
            s = warpgroup_mma_wait(1, (s,))
        else:
            s = warpgroup_mma_wait(0, (s,))
        head, first = w.queries(w, g, at, k)
        query = first + gl.arange(0, w.BM, gl.SliceLayout(0, layout))
        kept = head * gl.cdiv(g[6], 128) * 128 + query
        p = gl.exp2(s * g[10] - gl.expand_dims(gl.load(g[12] + kept), 0))
        if is_head:
            key = gl.expand_dims(at[0] + part * 64 + gl.arange(0, 64, gl.SliceLayout(1, layout)), 1)
            p = gl.where(key <= gl.expand_dims(query, 0) + g[7] - g[6], p, 0.0)
        narrow = narrowed(p, g[0].dtype)
        weights = as_operand(narrow, g[0].dtype, w.D)
        if w.D > 64:
            dp = warpgroup_mma(values, do.permute((1, 0)), zeros, use_acc=False, is_async=True)
        dv = warpgroup_mma(weights, do, dv, is_async=True)
        delta = gl.load(g[13] + kept)
        dp = warpgroup_mma_wait(1, (dp,))
        ds = widened(narrow, g[0].dtype) * (dp - gl.expand_dims(delta, 0))
        dk = warpgroup_mma(as_operand(ds, g[0].dtype, w.D), q, dk, is_async=True)
        return warpgroup_mma_wait(0, (dk, dv))

    @jit
    def last(w: gl.constexpr, g, at, part: gl.constexpr, state, room, slot):
        return state

    @jit
    def finish(w: gl.constexpr, g, at, part: gl.constexpr, state, room):
        room[2].index(part).reshape([64, w.D]).store((state[0] * g[11]).to(g[0].dtype))
        room[3].index(part).reshape([64, w.D]).store(state[1].to(g[0].dtype))
        fence_async_shared()
        corner = [at[1], at[0] + part * 64, 0]
        tma.async_copy_shared_to_global(g[4], corner, room[2].index(part))
        tma.async_copy_shared_to_global(g[5], corner, room[3].index(part))
        tma.store_wait(0)


@jit
def query_gradient_kernel(
    q, k, v, dq, S, T, heads, group, scale2, sums, together, do, delta, scale, w: gl.constexpr
):
    pipeline(w, (q, k, v, dq, S, T, heads, group, scale2, sums, together, do, delta, scale))


@jit
def key_gradient_kernel(
    q, do, k, v, dk, dv, S, T, kv_heads, group, scale2, scale, sums, delta, together, w: gl.constexpr
):
    pipeline(w, (q, do, k, v, dk, dv, S, T, kv_heads, group, scale2, scale, sums, delta, together))


def query_gradient(
    flat: Mapping[str, torch.Tensor], kept: torch.Tensor, is_causal: bool, scale: float
) -> None:
    (heads, s, d), (kv_heads, t, _) = flat["q"].shape, flat["k"].shape
    work = QueryGradient(D=d, is_causal=is_causal, is_askew=(t - s) % 64 != 0)
    rows = {"q": 64, "k": work.BN, "v": work.BN, "dq": 64, "do": 64}
    *described, of_output = (describe(flat[name], [1, n, d]) for name, n in rows.items())
    group = heads // kv_heads
    close = group * together(flat["k"], is_causal)
    sizes = s, t, heads, group
    arguments = (*described, *sizes, scale * LOG2_E, kept[0], close, of_output, kept[1], scale)
    programs = min(triton.cdiv(s, 128) * heads, multiprocessors(kept))
    launch(query_gradient_kernel, programs, arguments, work, kept)


def key_gradient(flat: Mapping[str, torch.Tensor], kept: torch.Tensor, is_causal: bool, scale: float) -> None:
    (heads, s, d), (kv_heads, t, _) = flat["q"].shape, flat["k"].shape
    group = heads // kv_heads
    stages = FEW_STAGES if d > 64 else {}
    work = KeyGradient(D=d, is_causal=is_causal, group=group if is_causal else 1, **stages)
    rows = {"q": work.BM, "do": work.BM, "k": 64, "v": 64, "dk": 64, "dv": 64}
    described = [describe(flat[name], [1, n, d]) for name, n in rows.items()]
    close = max(together(flat["q"], is_causal) // group, 1)
    arguments = (*described, s, t, kv_heads, group, scale * LOG2_E, scale, *kept, close)
    programs = min(triton.cdiv(t, 128) * kv_heads, multiprocessors(kept))
    launch(key_gradient_kernel, programs, arguments, work, kept)
