"""Based linear attention (linear_attention.py) on Hopper, for lengths up to a few thousand: the scores of all
pairs, as attention computes them, in bf16 or fp16.

Q and K are (batch, heads, T, 16), V and O (batch, heads, T, DV). With a = q.k / 4, a weight is
1 + a + a^2 / 2 = (a + 1)^2 / 2 + 1 / 2: two multiplications with an addition each. A tile is BM queries of a
head for each of two or three consumers. A step has a block of keys and their values, the first the block that
the tile's queries end in: while a step's scores are weighed, the values of the step before are multiplied.
Keys that no query of the tile sees are not loaded, and only blocks that some do not see are masked; past the
end of the input there are only such keys.

Weights are rounded to the inputs' type for the tensor cores, their sums are of those that are not. No weight
is below 1/2: in fp16 all are multiplied by 2^-12, which loses no digits, and overflow where |q.k| is beyond
90,000.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.tiles.assembler import narrowed
from assay.tiles.hopper import fence_async_shared, gl, jit, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from assay.tiles.launch import again, call_of, can_be_described, describe, launch, multiprocessors
from assay.tiles.pipeline import balanced, pipeline
from assay.tiles.work import Work

D = 16
WIDTHS = (16, 32, 64, 128)
"""Of values."""
MOST_ROWS = 4096
"""Longer inputs are faster with all the past in one matrix."""
EPSILON = 1e-6
HALF_UNIT = 2.0**-12


@dataclass(frozen=True)
class Based(Work):
    """g: q, k, v, o, T, heads, all heads of the batch."""

    stages: int = 4
    DV: int = 64
    BM: int = 64
    """Queries of a consumer."""
    BN: int = 128
    """Keys of a step."""
    normalise: bool = True
    unit: float = 1.0
    """What all weights are multiplied by."""
    D: ClassVar[int] = D
    entries: ClassVar[int] = 2

    @property
    def score_layout(self) -> gl.NVMMADistributedLayout:
        return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, self.BN, 16])

    @property
    def layout(self) -> gl.NVMMADistributedLayout:
        """Of sums."""
        return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, self.DV, 16])

    @property
    def rows(self) -> int:
        """Queries of a tile."""
        return self.BM * self.consumers

    @property
    def heads(self) -> int:
        """Blocks that a tile sees in part, at most."""
        return -(-(self.BN - math.gcd(self.rows, self.BN) + self.rows) // self.BN)

    @property
    def root(self) -> float:
        """Its square times (a + 1)^2 is all of a weight but a constant."""
        return math.sqrt(self.unit / 2)

    @property
    def epsilon(self) -> float:
        return self.unit * EPSILON

    @jit
    def room(w: gl.constexpr, g):
        q = gl.allocate_shared_memory(g[0].dtype, [w.consumers * w.entries, 1, 1, w.BM, w.D], g[0].layout)
        k = gl.allocate_shared_memory(g[1].dtype, [w.stages, 1, 1, w.BN, w.D], g[1].layout)
        v = gl.allocate_shared_memory(g[2].dtype, [w.stages, 1, 1, w.BN, w.DV], g[2].layout)
        return q, k, v, gl.allocate_shared_memory(g[3].dtype, [w.consumers, 1, 1, w.BM, w.DV], g[3].layout)

    @jit
    def tiles(w: gl.constexpr, g):
        return gl.cdiv(g[4], w.rows) * g[6]

    @jit
    def place(w: gl.constexpr, g, t, n):
        """Its first query, its batch entry, its head and its entry; the longest tiles first."""
        blocks = gl.cdiv(g[4], w.rows)
        t = balanced(t, n, blocks * g[6])
        pair = t % g[6]
        return (blocks - 1 - t // g[6]) * w.rows, pair // g[5], pair % g[5], n % 2

    @jit
    def steps(w: gl.constexpr, g, at):
        return gl.cdiv(min(at[0] + w.rows, g[4]), w.BN)

    @jit
    def enter(w: gl.constexpr, g, at, room, bar):
        mbarrier.expect(bar, w.consumers * g[0].block_type.nbytes)
        for part in gl.static_range(w.consumers):
            place = room[0].index(w.consumers * at[3] + part)
            tma.async_copy_global_to_shared(g[0], [at[1], at[2], at[0] + part * w.BM, 0], bar, place)

    @jit
    def load(w: gl.constexpr, g, at, k, room, slot, bar):
        corner = [at[1], at[2], (w.steps(w, g, at) - 1 - k) * w.BN, 0]
        mbarrier.expect(bar, g[1].block_type.nbytes + g[2].block_type.nbytes)
        tma.async_copy_global_to_shared(g[1], corner, bar, room[1].index(slot))
        tma.async_copy_global_to_shared(g[2], corner, bar, room[2].index(slot))

    @jit
    def scores(w: gl.constexpr, at, part: gl.constexpr, room, slot):
        """In flight."""
        keys = room[1].index(slot).reshape([w.BN, w.D]).permute((1, 0))
        queries = room[0].index(w.consumers * at[3] + part).reshape([w.BM, w.D])
        zeros = gl.zeros([w.BM, w.BN], gl.float32, w.score_layout)
        return warpgroup_mma(queries, keys, zeros, use_acc=False, is_async=True)

    @jit
    def weighted(w: gl.constexpr, room, slot, p, acc):
        """In flight."""
        return warpgroup_mma(p, room[2].index(slot).reshape([w.BN, w.DV]), acc, is_async=True)

    @jit
    def weights(w: gl.constexpr, g, at, part: gl.constexpr, k, s, total, is_masked: gl.constexpr):
        """As the left side of a product, and what they are summed up to: four sums a row, one for each
        thread that has some of its weights."""
        root = s * (w.root / 4) + w.root
        p = root * root + w.unit / 2
        if is_masked:
            first = (w.steps(w, g, at) - 1 - k) * w.BN
            key = gl.expand_dims(first + gl.arange(0, w.BN, gl.SliceLayout(0, w.score_layout)), 0)
            row = part * w.BM + gl.arange(0, w.BM, gl.SliceLayout(1, w.score_layout))
            p = gl.where(key <= gl.expand_dims(at[0] + row, 1), p, 0.0)
        if w.normalise:
            total += w.summed(w, p)
        return gl.convert_layout(narrowed(p, g[0].dtype), gl.DotOperandLayout(0, w.layout, 2)), total

    @jit
    def summed(w: gl.constexpr, p):
        return gl.sum(gl.sum(p.reshape([w.BM, w.BN // 8, 4, 2]), 3), 1)

    @jit
    def first(w: gl.constexpr, g, at, part: gl.constexpr, room, slot):
        s = warpgroup_mma_wait(0, (w.scores(w, at, part, room, slot),))
        total = w.summed(w, gl.zeros([w.BM, w.BN], gl.float32, w.score_layout))
        p, total = w.weights(w, g, at, part, 0, s, total, True)
        return gl.zeros([w.BM, w.DV], gl.float32, w.layout), p, total

    @jit
    def step(w: gl.constexpr, g, at, part: gl.constexpr, k, state, room, slot, is_head: gl.constexpr):
        acc, p, total = state
        s = w.scores(w, at, part, room, slot)
        acc = w.weighted(w, room, (slot + w.stages - 1) % w.stages, p, acc)
        s = warpgroup_mma_wait(1, (s,))
        p, total = w.weights(w, g, at, part, k, s, total, is_head)
        return warpgroup_mma_wait(0, (acc,)), p, total

    @jit
    def last(w: gl.constexpr, g, at, part: gl.constexpr, state, room, slot):
        acc, p, total = state
        return warpgroup_mma_wait(0, (w.weighted(w, room, slot, p, acc),)), total

    @jit
    def finish(w: gl.constexpr, g, at, part: gl.constexpr, state, room):
        acc, total = state
        if w.normalise:
            share = 1 / (gl.convert_layout(gl.sum(total, 1), gl.SliceLayout(1, w.layout)) + w.epsilon)
            acc = acc * gl.expand_dims(share, 1)
        else:
            acc = acc * (1 / w.unit)
        tma.store_wait(0)
        room[3].index(part).reshape([w.BM, w.DV]).store(acc.to(g[3].dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(g[3], [at[1], at[2], at[0] + part * w.BM, 0], room[3].index(part))


@jit
def based_kernel(q, k, v, o, T, heads, pairs, w: gl.constexpr):
    pipeline(w, (q, k, v, o, T, heads, pairs))


def covers(q: Tensor, v: Tensor) -> bool:
    """Whether these sizes and types are for the kernel here."""
    is_fit = q.dtype in (torch.bfloat16, torch.float16) and q.shape[3] == D and v.shape[3] in WIDTHS
    return is_fit and q.numel() > 0 and q.shape[2] <= MOST_ROWS


@functools.cache
def choose(dtype: torch.dtype, dv: int, normalise: bool, **how: Any) -> Based:
    unit = HALF_UNIT if dtype == torch.float16 else 1.0
    return Based(DV=dv, normalise=normalise, unit=unit, **how)


def based_on_hopper(q: Tensor, k: Tensor, v: Tensor, normalise: bool, **how: Any) -> Tensor:
    """None of them empty.

    Args:
        how: sizes other than the usual ones.
    """
    q, k, v = (_described(x) for x in (q, k, v))
    (batch, heads, length, _), dv = q.shape, v.shape[3]
    o = q.new_empty(batch, heads, length, dv)
    call = call_of(based_kernel, q, k, v, normalise, o.data_ptr(), *how.items())
    if again(call, q):
        return o
    work = choose(q.dtype, dv, normalise, **how)
    blocks = (work.BM, D), (work.BN, D), (work.BN, dv), (work.BM, dv)
    described = (describe(x, (1, 1, *block)) for x, block in zip((q, k, v, o), blocks, strict=True))
    programs = min(-(-length // work.rows) * batch * heads, multiprocessors(q))
    launch(based_kernel, programs, (*described, length, heads, batch * heads), work, q, call)
    return o


def _described(x: Tensor) -> Tensor:
    """As copies by descriptor take it."""
    is_fit = x.stride(3) == 1 and can_be_described(x)
    return x if is_fit else x.clone(memory_format=torch.contiguous_format)
