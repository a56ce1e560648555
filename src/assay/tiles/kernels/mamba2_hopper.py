"""Mamba 2 (mamba2.py) on Hopper: heads of P = 64 and states of N = 128, in bf16 or fp16.

T is cut into segments, as many as fill the GPU, and each of these into chunks of 64. A consumer owns a head,
and those of a program share b and c. One kernel (`Ends`) walks over a segment's chunks from its end, so that
what is added never decays again, and writes the state (P x N, float32) that the segment ends in when it
begins with none; one (`Outputs`) puts together what the segments before its own ended in, walks on from there
and writes y. The second is launched while the first still runs, and waits for it where it needs what that
one wrote.

With s the sums of dt a from a chunk's start, to the base of 2, and r = s - log2 dt, a chunk's own part is
(c_i.b_j) 2^(s_i - r_j) for j <= i, times x; the rest is 2^s_i c_i h. Where dt is zero, r is infinite and
nothing is added. A decay of which nothing is left is as good as any stronger one: so s and r keep digits.

Everything is computed transposed: then states and x come from registers, and only the weights pass through
shared memory. Only the state's products wait for each other: in both kernels a step makes what its chunk
needs beside the state, while the products of the chunk before run.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from assay.tiles.assembler import wait_for_last, widened
from assay.tiles.hopper import fence_async_shared, gl, jit, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from assay.tiles.kernels.attention_two_walks import as_operand
from assay.tiles.kernels.mamba2_ends import CHUNK, RECORD, Ends, N, P, Scan, ends_kernel
from assay.tiles.launch import can_be_described, describe, launch, multiprocessors
from assay.tiles.pipeline import pipeline

SEGMENT_COST = 2
"""What a segment takes beside its chunks, in chunks; for every eight of them as much again."""
MOST_SEGMENTS = 32


@dataclass(frozen=True)
class Outputs(Scan):
    """g goes on: c, y, rows, ends, decays, d."""

    stages: int = 4
    has_d: bool = True

    @jit
    def room(w: gl.constexpr, g):
        """Where weights were, y is when they have been used."""
        x = gl.allocate_shared_memory(g[0].dtype, [w.consumers * w.stages, 1, 64, w.P], g[0].layout)
        b = gl.allocate_shared_memory(g[1].dtype, [w.stages, 1, 64, w.N], g[1].layout)
        c = gl.allocate_shared_memory(g[8].dtype, [w.stages, 1, 64, w.N], g[8].layout)
        rows = gl.allocate_shared_memory(gl.float32, [w.consumers * w.stages, 256], g[10].layout)
        made = gl.allocate_shared_memory(g[9].dtype, [w.consumers, 1, 64, w.P], g[9].layout)
        return x, b, c, rows, made

    @jit
    def load(w: gl.constexpr, g, at, k, room, slot, bar):
        chunk = at[3] * g[7] + k
        each: gl.constexpr = g[0].block_type.nbytes + g[10].block_type.nbytes
        mbarrier.expect(bar, g[1].block_type.nbytes + g[8].block_type.nbytes + w.consumers * each)
        tma.async_copy_global_to_shared(g[1], [at[0], chunk * 64, at[1] * w.N], bar, room[1].index(slot))
        tma.async_copy_global_to_shared(g[8], [at[0], chunk * 64, at[1] * w.N], bar, room[2].index(slot))
        for part in gl.static_range(w.consumers):
            corner = [at[0], chunk * 64, w.head(w, g, at, part) * w.P]
            tma.async_copy_global_to_shared(g[0], corner, bar, room[0].index(w.consumers * slot + part))
        if k == 0:
            wait_for_last()
        for part in gl.static_range(w.consumers):
            first = w.rows_place(w, g, at, part, chunk)
            tma.async_copy_global_to_shared(g[10], [first], bar, room[3].index(w.consumers * slot + part))

    @jit
    def ended(w: gl.constexpr, g, at, part: gl.constexpr, segment):
        """What a segment before this one ended in, and the logarithm of its decay."""
        segment = min(segment, at[3] - 1)
        decay = gl.load(g[12] + w.slot(w, g, at, part, segment))
        return gl.load(g[11] + w.state_places(w, g, at, part, segment)), decay

    @jit
    def begin(w: gl.constexpr, g, at, part: gl.constexpr, room):
        """What the first two segments ended in, the second one's decay, and d: asked for, not looked at."""
        skip = w.skip(w, g, at, part)
        state = gl.zeros([w.P, w.N], gl.float32, w.wide)
        ended, decay = state, 0.0
        if at[3] > 0:
            wait_for_last()
            state, decay = w.ended(w, g, at, part, 0)
            ended, decay = w.ended(w, g, at, part, 1)
        return state, ended, decay, skip

    @jit
    def first(w: gl.constexpr, g, at, part: gl.constexpr, room, slot, begun):
        """Weights are made before the state is looked at; while one end is added, the next is on its way."""
        state, ended, decay, skip = begun
        alike = w.alike(w, room, slot)
        decays = w.between(w, g, room[3].index(w.consumers * slot + part))
        w.keep(w, g, part, warpgroup_mma_wait(0, (alike,)) * decays, room)
        for before in range(1, at[3]):
            soon, later = w.ended(w, g, at, part, before + 1)
            state = state * gl.exp2(decay) + ended
            ended, decay = soon, later
        return state, skip

    @jit
    def step(w: gl.constexpr, g, at, part: gl.constexpr, k, state, room, slot, is_head: gl.constexpr):
        """The products of the next chunk's b and c and its decays are made while those with the state run,
        and its weights while nothing has to wait for them."""
        state, skip = state
        before = (slot + w.stages - 1) % w.stages
        kept = room[3].index(w.consumers * before + part)
        y = w.seen(w, g, state, room, before)
        gl.thread_barrier()  # else ptxas begins it behind all that follows
        x = w.own(w, g, part, room, before)
        left, state = w.decayed(w, g, x, state, kept)
        state = warpgroup_mma(left, room[1].index(before).reshape([64, w.N]), state, is_async=True)
        y = w.grown(w, g, part, x, warpgroup_mma_wait(1, (y,)), kept, room)
        alike = w.alike(w, room, slot)
        decays = w.between(w, g, room[3].index(w.consumers * slot + part))
        y, state = warpgroup_mma_wait(1, (y, state))
        w.write(w, g, at, part, k - 1, y, x, skip, room)
        w.keep(w, g, part, warpgroup_mma_wait(0, (alike,)) * decays, room)
        return state, skip

    @jit
    def last(w: gl.constexpr, g, at, part: gl.constexpr, state, room, slot):
        """Nobody asks for the state after the last chunk."""
        state, skip = state
        y = w.seen(w, g, state, room, slot)
        x = w.own(w, g, part, room, slot)
        kept = room[3].index(w.consumers * slot + part)
        y = w.grown(w, g, part, x, warpgroup_mma_wait(0, (y,)), kept, room)
        w.write(w, g, at, part, w.steps(w, g, at) - 1, warpgroup_mma_wait(0, (y,)), x, skip, room)
        return state

    @jit
    def alike(w: gl.constexpr, room, slot):
        """Products of b and c, in flight."""
        c = room[2].index(slot).reshape([64, w.N]).permute((1, 0))
        zeros = gl.zeros([64, 64], gl.float32, w.narrow)
        return warpgroup_mma(room[1].index(slot).reshape([64, w.N]), c, zeros, use_acc=False, is_async=True)

    @jit
    def seen(w: gl.constexpr, g, state, room, slot):
        """What a chunk's queries see of the state, in flight."""
        c = room[2].index(slot).reshape([64, w.N]).permute((1, 0))
        zeros = gl.zeros([64, 64], gl.float32, w.narrow)
        return warpgroup_mma(as_operand(state, g[0].dtype, 64), c, zeros, use_acc=False, is_async=True)

    @jit
    def across(w: gl.constexpr, kept, which: gl.constexpr):
        """One of what is kept of a chunk, a column for each row of it."""
        return gl.expand_dims(kept.slice(64 * which, 64).load(gl.SliceLayout(0, w.narrow)), 0)

    @jit
    def decayed(w: gl.constexpr, g, x, state, kept):
        """What is left of a chunk's rows at its end, and of the state."""
        operand = as_operand(widened(x, g[0].dtype) * w.across(w, kept, 3), g[0].dtype, w.N)
        return operand, state * gl.expand_dims(kept.slice(191, 1).load(gl.SliceLayout(1, w.wide)), 1)

    @jit
    def grown(w: gl.constexpr, g, part: gl.constexpr, x, y, kept, room):
        """What a chunk's queries see of the state has decayed, and its own rows are added; in flight."""
        weights = room[4].index(part).reshape([64, 64])
        return warpgroup_mma(as_operand(x, g[0].dtype, 64), weights, y * w.across(w, kept, 2), is_async=True)

    @jit
    def between(w: gl.constexpr, g, kept):
        """What is left of a key when a query comes; a row for each key, a column for each query. Masked
        before the exponential: a query does not see later keys, whose decay would be growth."""
        query = gl.expand_dims(gl.arange(0, 64, gl.SliceLayout(0, w.narrow)), 0)
        key = gl.expand_dims(gl.arange(0, 64, gl.SliceLayout(1, w.narrow)), 1)
        lost = gl.expand_dims(kept.slice(64, 64).load(gl.SliceLayout(1, w.narrow)), 1)
        return gl.exp2(gl.where(key <= query, w.across(w, kept, 0) - lost, float("-inf")))

    @jit
    def keep(w: gl.constexpr, g, part: gl.constexpr, weights, room):
        """Where y was, once it has been written."""
        tma.store_wait(0)
        room[4].index(part).reshape([64, 64]).store(weights.to(g[0].dtype))
        fence_async_shared()

    @jit
    def skip(w: gl.constexpr, g, at, part: gl.constexpr):
        """d of the head."""
        d = 0.0
        if w.has_d:
            d = gl.load(g[13] + min(w.head(w, g, at, part), g[4] - 1)).to(gl.float32)
        return d

    @jit
    def write(w: gl.constexpr, g, at, part: gl.constexpr, k, y, x, skip, room):
        if w.has_d:
            y += widened(x, g[0].dtype) * skip
        room[4].index(part).reshape([64, w.P]).permute((1, 0)).store(y.to(g[9].dtype))
        fence_async_shared()
        corner = [at[0], (at[3] * g[7] + k) * 64, w.head(w, g, at, part) * w.P]
        tma.async_copy_shared_to_global(g[9], corner, room[4].index(part))

    @jit
    def finish(w: gl.constexpr, g, at, part: gl.constexpr, state, room):
        pass


@jit
def outputs_kernel(
    x, b, tiles, T, heads, shared, last, chunks, c, y, rows, ends, decays, d, w: gl.constexpr
):  # fmt: skip
    pipeline(w, (x, b, tiles, T, heads, shared, last, chunks, c, y, rows, ends, decays, d))


def covers(x: Tensor, b: Tensor) -> bool:
    """Whether these sizes and types are for the kernels here: two heads at least share b and c."""
    is_fit = x.dtype in (torch.bfloat16, torch.float16) and (x.shape[3], b.shape[3]) == (P, N)
    return is_fit and x.shape[2] > b.shape[2]


def mamba2_on_hopper(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor | None) -> Tensor:
    """The arguments of `mamba2_op`, none of them empty."""
    (batch, length, heads), groups, dt = dt.shape, b.shape[2], dt.contiguous()
    x, b, c = (_flat(t) for t in (x, b, c))
    ends_work, outputs_work = Ends(), Outputs(has_d=d is not None)
    tiles = batch * groups * triton.cdiv(heads // groups, outputs_work.consumers)
    segments, chunks = cut(triton.cdiv(length, CHUNK), tiles, multiprocessors(x))
    y, kept = x.new_empty(x.shape), batch * heads * segments
    rows, ends, decays = (x.new_empty(kept, n, dtype=torch.float32) for n in (chunks * RECORD, P * N, 1))
    of_x, of_y = (describe(t, [1, CHUNK, P]) for t in (x, y))
    of_b, of_c = (describe(t, [1, CHUNK, N]) for t in (b, c))
    given = (of_x, of_b, tiles * segments, length, heads, heads // groups, segments - 1, chunks)
    programs = min(tiles * segments, multiprocessors(x))
    launch(ends_kernel, programs, (*given, dt, a, rows, ends, decays), ends_work, x)
    given += (of_c, of_y, describe(rows.view(-1), [RECORD]), ends, decays, a if d is None else d)
    launch(outputs_kernel, programs, given, outputs_work, x, waits_itself=True)
    return y.view(batch, length, heads, P)


def _flat(tensor: Tensor) -> Tensor:
    """(batch, T, heads * width), as copies by descriptor take it."""
    flat = tensor.flatten(2)
    is_fit = can_be_described(flat) and flat.stride(2) == 1
    return flat if is_fit else flat.clone(memory_format=torch.contiguous_format)


@functools.cache
def cut(chunks: int, tiles: int, programs: int) -> tuple[int, int]:
    """How many segments, and chunks in each: those with which the last program ends first.

    Args:
        tiles: of one segment.
    """

    def duration(segments: int) -> float:
        rounds = triton.cdiv(tiles * segments, programs)
        return rounds * (triton.cdiv(chunks, segments) + SEGMENT_COST * (1 + segments / 8))

    each = triton.cdiv(chunks, min(range(1, min(chunks, MOST_SEGMENTS) + 1), key=duration))
    return triton.cdiv(chunks, each), each
