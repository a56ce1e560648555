"""The gradients of attention, from what the forward pass kept: its outputs and the logarithms of its sums.

    P = exp2(scale Q K^T - L)    dP = dO V^T    dS = P (dP - rowsum(dO O))
    dV = P^T dO                  dK = dS^T Q    dQ = dS K

Two kernels: one walks over the queries for a block of keys and keeps dK and dV in registers, one over the
keys for a block of queries and keeps dQ. Scores are computed twice, and nothing is added by way of memory, so
that results are the same every time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import triton

from assay.tiles.hopper import fence_async_shared, gl, jit, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from assay.tiles.kernels.attention import Attention
from assay.tiles.launch import aligned, describe, launch, multiprocessors
from assay.tiles.pipeline import pipeline
from assay.tiles.work import Work

_NAMES = ("q", "do", "k", "v", "dq", "dk", "dv")
_SMALL_STEPS = {"BM": 32, "stages": 6}
"""Beside dK and dV of 128 columns, registers do not hold more."""


@jit
def _operand(p, dtype: gl.constexpr, D: gl.constexpr):
    """Weights as the left side of a product."""
    out: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    return gl.convert_layout(p.to(dtype), gl.DotOperandLayout(0, out, 2))


@jit
def _sums(pointer, first, inside):
    """Logarithms of sums; whoever sees nothing has no weights."""
    sums = gl.load(pointer + first, inside, other=float("inf"))
    return gl.where(sums == float("-inf"), float("inf"), sums)


@dataclass(frozen=True)
class QueryGradient(Attention):
    """g: q, k, v, dq, S, T, heads, group, scale in base 2, sums, do, delta, scale."""

    stages: int = 4
    BN: int = 64

    @jit
    def room(w: gl.constexpr, g):
        q = gl.allocate_shared_memory(g[0].dtype, [2, 1, 64, w.D], g[0].layout)
        k = gl.allocate_shared_memory(g[1].dtype, [w.stages, 1, w.BN, w.D], g[1].layout)
        v = gl.allocate_shared_memory(g[2].dtype, [w.stages, 1, w.BN, w.D], g[2].layout)
        return q, k, v, gl.allocate_shared_memory(g[10].dtype, [2, 1, 64, w.D], g[10].layout)

    @jit
    def enter(w: gl.constexpr, g, at, room, bar):
        mbarrier.expect(bar, 4 * g[0].block_type.nbytes)
        for part in gl.static_range(2):
            corner = [at[1], at[0] + part * 64, 0]
            tma.async_copy_global_to_shared(g[0], corner, bar, room[0].index(part))
            tma.async_copy_global_to_shared(g[10], corner, bar, room[3].index(part))

    @jit
    def first(w: gl.constexpr, g, at, part: gl.constexpr, room, slot):
        layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, w.BN, 16])
        out: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, w.D, 16])
        query = at[0] + part * 64 + gl.arange(0, 64, gl.SliceLayout(1, layout))
        sums = _sums(g[9] + at[1] * g[4], query, query < g[4])
        delta = gl.load(g[11] + at[1] * g[4] + query, query < g[4], other=0.0)
        state = gl.zeros([64, w.D], gl.float32, out), sums, delta
        return w.step(w, g, at, part, 0, state, room, slot, slot, w.is_causal)

    @jit
    def step(w: gl.constexpr, g, at, part: gl.constexpr, k, state, room, slot, before, is_head: gl.constexpr):
        layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, w.BN, 16])
        acc, sums, delta = state
        zeros = gl.zeros([64, w.BN], gl.float32, layout)
        keys = room[1].index(slot).reshape([w.BN, w.D])
        values = room[2].index(slot).reshape([w.BN, w.D])
        q, do = room[0].index(part).reshape([64, w.D]), room[3].index(part).reshape([64, w.D])
        s = warpgroup_mma(q, keys.permute((1, 0)), zeros, use_acc=False, is_async=True)
        dp = warpgroup_mma(do, values.permute((1, 0)), zeros, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(1, (s,))
        p = gl.exp2(s * g[8] - gl.expand_dims(sums, 1))
        if is_head:
            block = w.steps(w, g, at) - 1 - k
            key = gl.expand_dims(block * w.BN + gl.arange(0, w.BN, gl.SliceLayout(0, layout)), 0)
            query = gl.expand_dims(at[0] + part * 64 + gl.arange(0, 64, gl.SliceLayout(1, layout)), 1)
            p = gl.where(key <= query + g[5] - g[4], p, 0.0)
        dp = warpgroup_mma_wait(0, (dp,))
        ds = _operand(p * (dp - gl.expand_dims(delta, 1)), g[0].dtype, w.D)
        return warpgroup_mma(ds, keys, acc), sums, delta

    @jit
    def last(w: gl.constexpr, g, at, part: gl.constexpr, state, room, slot):
        return state

    @jit
    def finish(w: gl.constexpr, g, at, part: gl.constexpr, state, room):
        room[0].index(part).reshape([64, w.D]).store((state[0] * g[12]).to(g[0].dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(g[3], [at[1], at[0] + part * 64, 0], room[0].index(part))
        tma.store_wait(0)


@dataclass(frozen=True)
class KeyGradient(Work):
    """g: q, do, k, v, dk, dv, S, T, kv_heads, group, scale in base 2, scale, sums, delta."""

    stages: int = 4
    D: int = 128
    BM: int = 64
    """Queries of a step."""
    is_causal: bool = False
    enters: ClassVar[bool] = True

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
    def place(w: gl.constexpr, g, t):
        return (t // g[8]) * 128, t % g[8]

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
        skipped = w.skipped(w, g, at)
        blocks = gl.cdiv(g[6], w.BM) - skipped
        return at[1] * g[9] + k // blocks, (skipped + k % blocks) * w.BM

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
        return w.step(w, g, at, part, 0, state, room, slot, slot, True)

    @jit
    def step(w: gl.constexpr, g, at, part: gl.constexpr, k, state, room, slot, before, is_head: gl.constexpr):
        layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, w.BM, 16])
        dk, dv = state
        zeros = gl.zeros([64, w.BM], gl.float32, layout)
        q, do = room[0].index(slot).reshape([w.BM, w.D]), room[1].index(slot).reshape([w.BM, w.D])
        keys, values = room[2].index(part).reshape([64, w.D]), room[3].index(part).reshape([64, w.D])
        s = warpgroup_mma(keys, q.permute((1, 0)), zeros, use_acc=False, is_async=True)
        dp = warpgroup_mma(values, do.permute((1, 0)), zeros, use_acc=False, is_async=True)
        head, first = w.queries(w, g, at, k)
        query = first + gl.arange(0, w.BM, gl.SliceLayout(0, layout))
        sums = _sums(g[12] + head * g[6], query, query < g[6])
        s = warpgroup_mma_wait(1, (s,))
        p = gl.exp2(s * g[10] - gl.expand_dims(sums, 0))
        if w.is_causal:
            key = gl.expand_dims(at[0] + part * 64 + gl.arange(0, 64, gl.SliceLayout(1, layout)), 1)
            p = gl.where(key <= gl.expand_dims(query, 0) + g[7] - g[6], p, 0.0)
        # Not before the sums are done with: both together are more than the registers hold.
        delta = gl.load(g[13] + head * g[6] + query, query < g[6], other=0.0)
        dp = warpgroup_mma_wait(0, (dp,))
        ds = _operand(p * (dp - gl.expand_dims(delta, 0)), g[0].dtype, w.D)
        dv = warpgroup_mma(_operand(p, g[0].dtype, w.D), do, dv, is_async=True)
        dk = warpgroup_mma(ds, q, dk, is_async=True)
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
def query_gradient_kernel(q, k, v, dq, S, T, heads, group, scale2, sums, do, delta, scale, w: gl.constexpr):
    pipeline(w, (q, k, v, dq, S, T, heads, group, scale2, sums, do, delta, scale))


@jit
def key_gradient_kernel(
    q, do, k, v, dk, dv, S, T, kv_heads, group, scale2, scale, sums, delta, w: gl.constexpr
):
    pipeline(w, (q, do, k, v, dk, dv, S, T, kv_heads, group, scale2, scale, sums, delta))


@torch.library.custom_op("assay::attention_backward", mutates_args=())
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
    batch, heads, s, d = q.shape
    kv_heads, t = k.shape[1:3]
    delta = (do.float() * o.float()).sum(-1)
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    flat = {name: x.view(-1, *x.shape[2:]) for name, x in zip(_NAMES, (q, do, k, v, dq, dk, dv), strict=True)}
    group, scale2 = heads // kv_heads, scale * math.log2(math.e)

    by_query = QueryGradient(D=d, is_causal=is_causal)
    rows = {"q": 64, "k": by_query.BN, "v": by_query.BN, "dq": 64, "do": 64}
    *described, of_output = (describe(flat[name], [1, n, d]) for name, n in rows.items())
    programs = min(triton.cdiv(s, 128) * batch * heads, multiprocessors(q))
    arguments = (*described, s, t, batch * heads, group, scale2, sums, of_output, delta, scale)
    launch(query_gradient_kernel, programs, arguments, by_query, q)

    by_key = KeyGradient(D=d, is_causal=is_causal, **_SMALL_STEPS if d > 64 else {})
    rows = {"q": by_key.BM, "do": by_key.BM, "k": 64, "v": 64, "dk": 64, "dv": 64}
    described = [describe(flat[name], [1, n, d]) for name, n in rows.items()]
    programs = min(triton.cdiv(t, 128) * batch * kv_heads, multiprocessors(q))
    arguments = (*described, s, t, batch * kv_heads, group, scale2, scale, sums, delta)
    launch(key_gradient_kernel, programs, arguments, by_key, q)
    return dq, dk, dv


@attention_backward.register_fake
def _(do, q, k, v, o, sums, is_causal, scale):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
