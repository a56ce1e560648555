"""Mamba 2 (mamba2.py) on Hopper: heads of P = 64 and states of N = 128, in bf16 or fp16.

T is cut into segments, as many as fill the GPU, and each of these into chunks of 64. A consumer owns a head,
and those of a program share b and c. One kernel (`Ends`) walks over a segment's chunks from its end, so that
what is added never decays again, and writes the state (P x N, float32) that the segment ends in when it
begins with none; one (`Outputs`) puts together what the segments before its own ended in, walks on from there
and writes y. The second is launched while the first still runs, and waits for it where it needs what that
one wrote.

With s the sums of dt a from a chunk's start, to the base of 2, and r = s - log2(dt), a chunk's own part is
(c_i.b_j) 2^(s_i - r_j) for j <= i, times x; the rest is 2^s_i c_i h. Where dt is zero, r is infinite and
nothing is added; where it is negative, r is NaN, and so is y from there on. A decay stronger than 2^-256 is
taken for that, which leaves nothing of a float32 either: so s does not fall below -2^14, and r keeps its
digits.

Everything is computed transposed: then states and x come from registers, and only the weights pass through
shared memory.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import triton
from torch import Tensor

from assay.tiles.assembler import let_next_begin, wait_for_last, widened
from assay.tiles.hopper import fence_async_shared, gl, jit, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from assay.tiles.kernels.attention_two_walks import as_operand
from assay.tiles.launch import can_be_described, describe, launch, multiprocessors
from assay.tiles.pipeline import pipeline
from assay.tiles.work import Work

CHUNK = 64
P = 64
N = 128
SEGMENT_COST = 2
"""What a segment takes beside its chunks, in chunks; for every eight of them as much again."""
MOST_SEGMENTS = 32
LOG2_E: Any = gl.constexpr(1.4426950408889634)
ALL_IS_FORGOTTEN: Any = gl.constexpr(-256.0)
"""Of a row's decay the least logarithm, to the base of 2."""


@jit
def added(a, b):
    return a + b


@dataclass(frozen=True)
class Scan(Work):
    """g: x, b, tiles, T, heads, shared, the last segment, chunks of each, and what a kernel adds."""

    P: ClassVar[int] = P
    N: ClassVar[int] = N
    holds: ClassVar[bool] = False

    @property
    def narrow(self) -> gl.NVMMADistributedLayout:
        """Of what has a row for each of P and a column for each of a chunk's rows."""
        return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])

    @property
    def wide(self) -> gl.NVMMADistributedLayout:
        """Of states."""
        return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, self.N, 16])

    @jit
    def tiles(w: gl.constexpr, g):
        return g[2]

    @jit
    def place(w: gl.constexpr, g, t, n):
        """Its batch entry, group, first head, and segment."""
        blocks, groups = gl.cdiv(g[5], w.consumers), g[4] // g[5]
        block = t // (g[6] + 1)
        group = block // blocks % groups
        head = group * g[5] + block % blocks * w.consumers
        return block // (blocks * groups), group, head, t % (g[6] + 1)

    @jit
    def steps(w: gl.constexpr, g, at):
        return min(g[7], gl.cdiv(g[3], 64) - at[3] * g[7])

    @jit
    def head(w: gl.constexpr, g, at, part: gl.constexpr):
        """The one past the last if the group has no such head: nothing is read or written there."""
        head = at[2] + part
        if head >= (at[1] + 1) * g[5]:
            head = g[4]
        return head

    @jit
    def pair(w: gl.constexpr, g, at, part: gl.constexpr):
        return at[0] * g[4] + min(w.head(w, g, at, part), g[4] - 1)

    @jit
    def slot(w: gl.constexpr, g, at, part: gl.constexpr, segment):
        """Of what a segment ends in."""
        return w.pair(w, g, at, part) * (g[6] + 1) + segment

    @jit
    def rows_place(w: gl.constexpr, g, at, part: gl.constexpr, chunk):
        """Of what is kept of a chunk."""
        return (w.pair(w, g, at, part) * ((g[6] + 1) * g[7]) + chunk) * 128

    @jit
    def state_places(w: gl.constexpr, g, at, part: gl.constexpr, segment):
        row = gl.expand_dims(gl.arange(0, w.P, gl.SliceLayout(1, w.wide)), 1)
        column = gl.expand_dims(gl.arange(0, w.N, gl.SliceLayout(0, w.wide)), 0)
        return w.slot(w, g, at, part, segment) * (w.P * w.N) + row * w.N + column

    @jit
    def own(w: gl.constexpr, g, part: gl.constexpr, room, slot):
        """x, transposed, in registers."""
        x = room[0].index(w.consumers * slot + part).reshape([64, w.P]).permute((1, 0))
        return gl.convert_layout(x.load(gl.DotOperandLayout(0, w.narrow, 2)), w.narrow)

    @jit
    def last(w: gl.constexpr, g, at, part: gl.constexpr, state, room, slot):
        return state


@dataclass(frozen=True)
class Ends(Scan):
    """g goes on: dt, a, rows, ends, decays."""

    stages: int = 6

    @jit
    def room(w: gl.constexpr, g):
        let_next_begin()
        x = gl.allocate_shared_memory(g[0].dtype, [w.consumers * w.stages, 1, 64, w.P], g[0].layout)
        return x, gl.allocate_shared_memory(g[1].dtype, [w.stages, 1, 64, w.N], g[1].layout)

    @jit
    def chunk(w: gl.constexpr, g, at, k):
        """The last one first."""
        return at[3] * g[7] + w.steps(w, g, at) - 1 - k

    @jit
    def load(w: gl.constexpr, g, at, k, room, slot, bar):
        """Nobody asks what the last segment ends in: only its sums are wanted."""
        row = w.chunk(w, g, at, k) * 64
        if at[3] < g[6]:
            mbarrier.expect(bar, w.consumers * g[0].block_type.nbytes + g[1].block_type.nbytes)
            tma.async_copy_global_to_shared(g[1], [at[0], row, at[1] * w.N], bar, room[1].index(slot))
            for part in gl.static_range(w.consumers):
                place = room[0].index(w.consumers * slot + part)
                tma.async_copy_global_to_shared(g[0], [at[0], row, w.head(w, g, at, part) * w.P], bar, place)
        else:
            mbarrier.arrive(bar, count=1)

    @jit
    def lengths(w: gl.constexpr, g, at, part: gl.constexpr, k):
        """dt of a chunk; every warp has all of it."""
        row = w.chunk(w, g, at, k) * 64 + gl.arange(0, 64, gl.BlockedLayout([2], [32], [4], [0]))
        head = min(w.head(w, g, at, part), g[4] - 1)
        is_there = (row < g[3]) & (k < w.steps(w, g, at))
        return gl.load(g[8] + (at[0] * g[3] + row) * g[4] + head, is_there, other=0.0).to(gl.float32)

    @jit
    def lefts(w: gl.constexpr, g, at, part: gl.constexpr, k, length, pace, after):
        """What is left of a chunk's rows at the segment's end, where 2^after is left of the chunk's end; and
        keeps the chunk's sums."""
        decay = length * pace
        decay = gl.where(decay < ALL_IS_FORGOTTEN, ALL_IS_FORGOTTEN, decay)  # which leaves a NaN one
        sums, total = gl.associative_scan(decay, 0, added), gl.sum(decay, 0)
        reach = sums - gl.log2(length)
        line = gl.arange(0, 64, gl.BlockedLayout([2], [32], [4], [0]))
        place = w.rows_place(w, g, at, part, w.chunk(w, g, at, k)) + line
        is_there = (k < w.steps(w, g, at)) & (w.head(w, g, at, part) < g[4])
        gl.store(g[10] + place, sums, is_there)
        gl.store(g[10] + place + 64, reach, is_there)
        after += total
        return gl.convert_layout(gl.exp2(after - reach), gl.SliceLayout(0, w.narrow)), after

    @jit
    def first(w: gl.constexpr, g, at, part: gl.constexpr, room, slot):
        pace = gl.load(g[9] + min(w.head(w, g, at, part), g[4] - 1)).to(gl.float32) * LOG2_E
        now, soon = w.lengths(w, g, at, part, 0), w.lengths(w, g, at, part, 1)
        later = w.lengths(w, g, at, part, 2)
        left, after = w.lefts(w, g, at, part, 0, now, pace, 0.0)
        state = gl.zeros([w.P, w.N], gl.float32, w.wide), left, after, soon, later, pace
        return w.step(w, g, at, part, 0, state, room, slot, True)

    @jit
    def step(w: gl.constexpr, g, at, part: gl.constexpr, k, state, room, slot, is_head: gl.constexpr):
        """While the product runs, the next chunk's decays are made and the one after it is asked for."""
        acc, left, after, soon, later, pace = state
        x = w.own(w, g, part, room, slot)
        operand = as_operand(x.to(gl.float32) * gl.expand_dims(left, 0), g[0].dtype, w.N)
        acc = warpgroup_mma(operand, room[1].index(slot).reshape([64, w.N]), acc, is_async=True)
        gl.thread_barrier()  # else ptxas begins the product behind all that follows
        latest = w.lengths(w, g, at, part, k + 3)
        left, after = w.lefts(w, g, at, part, k + 1, soon, pace, after)
        return warpgroup_mma_wait(0, (acc,)), left, after, later, latest, pace

    @jit
    def finish(w: gl.constexpr, g, at, part: gl.constexpr, state, room):
        is_there = (w.head(w, g, at, part) < g[4]) & (at[3] < g[6])
        gl.store(g[11] + w.state_places(w, g, at, part, at[3]), state[0], is_there)
        gl.store(g[12] + w.slot(w, g, at, part, at[3]), state[2], is_there)


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
        rows = gl.allocate_shared_memory(gl.float32, [2 * w.consumers * w.stages, 64], g[10].layout)
        made = gl.allocate_shared_memory(g[9].dtype, [w.consumers, 1, 64, w.P], g[9].layout)
        return x, b, c, rows, made

    @jit
    def load(w: gl.constexpr, g, at, k, room, slot, bar):
        chunk = at[3] * g[7] + k
        each: gl.constexpr = g[0].block_type.nbytes + 2 * g[10].block_type.nbytes
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
            place = 2 * (w.consumers * slot + part)
            tma.async_copy_global_to_shared(g[10], [first], bar, room[3].index(place))
            tma.async_copy_global_to_shared(g[10], [first + 64], bar, room[3].index(place + 1))

    @jit
    def first(w: gl.constexpr, g, at, part: gl.constexpr, room, slot):
        state = gl.zeros([w.P, w.N], gl.float32, w.wide)
        if at[3] > 0:
            state = w.begin(w, g, at, part)
        return w.step(w, g, at, part, 0, state, room, slot, True)

    @jit
    def begin(w: gl.constexpr, g, at, part: gl.constexpr):
        """The state that a segment begins with; while one end is added, the next is on its way."""
        wait_for_last()
        state = gl.load(g[11] + w.state_places(w, g, at, part, 0))
        ended = gl.load(g[11] + w.state_places(w, g, at, part, min(1, at[3] - 1)))
        for before in range(1, at[3]):
            less = gl.exp2(gl.load(g[12] + w.slot(w, g, at, part, before)))
            soon = gl.load(g[11] + w.state_places(w, g, at, part, min(before + 1, at[3] - 1)))
            state = state * less + ended
            ended = soon
        return state

    @jit
    def step(w: gl.constexpr, g, at, part: gl.constexpr, k, state, room, slot, is_head: gl.constexpr):
        """Products with b and c begin at once; what they will be multiplied by is made meanwhile, and the
        state is carried on while y is written."""
        b = room[1].index(slot).reshape([64, w.N])
        c = room[2].index(slot).reshape([64, w.N]).permute((1, 0))
        zeros = gl.zeros([64, 64], gl.float32, w.narrow)
        alike = warpgroup_mma(b, c, zeros, use_acc=False, is_async=True)
        y = warpgroup_mma(as_operand(state, g[0].dtype, 64), c, zeros, use_acc=False, is_async=True)
        x = w.own(w, g, part, room, slot)
        sums, reach = w.kept(w, part, room, slot)
        left, state = w.decayed(w, g, x, state, sums, reach)
        w.weigh(w, g, part, warpgroup_mma_wait(1, (alike,)), sums, reach, room)
        y = w.grown(w, g, part, x, warpgroup_mma_wait(0, (y,)), sums, room)
        state = warpgroup_mma(left, b, state, is_async=True)
        w.write(w, g, at, part, k, warpgroup_mma_wait(1, (y,)), x, room)
        return warpgroup_mma_wait(0, (state,))

    @jit
    def kept(w: gl.constexpr, part: gl.constexpr, room, slot):
        """s and r, in shared memory."""
        place = 2 * (w.consumers * slot + part)
        return room[3].index(place), room[3].index(place + 1)

    @jit
    def decayed(w: gl.constexpr, g, x, state, sums, reach):
        """What is left of a chunk's rows at its end, and of the state."""
        total = sums.slice(63, 1).load(gl.SliceLayout(1, w.wide))
        end = gl.expand_dims(gl.convert_layout(total, gl.SliceLayout(1, w.narrow)), 1)
        left = gl.exp2(end - gl.expand_dims(reach.load(gl.SliceLayout(0, w.narrow)), 0))
        operand = as_operand(x.to(gl.float32) * left, g[0].dtype, w.N)
        return operand, state * gl.expand_dims(gl.exp2(total), 1)

    @jit
    def grown(w: gl.constexpr, g, part: gl.constexpr, x, y, sums, room):
        """What a chunk's queries see of the state has decayed, and its own rows are added; in flight."""
        y = y * gl.exp2(gl.expand_dims(sums.load(gl.SliceLayout(0, w.narrow)), 0))
        weights = room[4].index(part).reshape([64, 64])
        return warpgroup_mma(as_operand(x, g[0].dtype, 64), weights, y, is_async=True)

    @jit
    def weigh(w: gl.constexpr, g, part: gl.constexpr, alike, sums, reach, room):
        """A row for each key, a column for each query. Masked before the exponential: a query does not see
        later keys, whose decay would be growth."""
        query = gl.expand_dims(gl.arange(0, 64, gl.SliceLayout(0, w.narrow)), 0)
        key = gl.expand_dims(gl.arange(0, 64, gl.SliceLayout(1, w.narrow)), 1)
        gained = gl.expand_dims(sums.load(gl.SliceLayout(0, w.narrow)), 0)
        lost = gl.expand_dims(reach.load(gl.SliceLayout(1, w.narrow)), 1)
        between = gl.where(key <= query, gained - lost, float("-inf"))
        tma.store_wait(0)
        room[4].index(part).reshape([64, 64]).store((alike * gl.exp2(between)).to(g[0].dtype))
        fence_async_shared()

    @jit
    def write(w: gl.constexpr, g, at, part: gl.constexpr, k, y, x, room):
        head = w.head(w, g, at, part)
        if w.has_d:
            y += widened(x, g[0].dtype) * gl.load(g[13] + min(head, g[4] - 1)).to(gl.float32)
        room[4].index(part).reshape([64, w.P]).permute((1, 0)).store(y.to(g[9].dtype))
        fence_async_shared()
        corner = [at[0], (at[3] * g[7] + k) * 64, head * w.P]
        tma.async_copy_shared_to_global(g[9], corner, room[4].index(part))

    @jit
    def finish(w: gl.constexpr, g, at, part: gl.constexpr, state, room):
        pass


@jit
def ends_kernel(
    x, b, tiles, T, heads, shared, last, chunks, dt, a, rows, ends, decays, w: gl.constexpr
):  # fmt: skip
    pipeline(w, (x, b, tiles, T, heads, shared, last, chunks, dt, a, rows, ends, decays))


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
    rows, ends, decays = (x.new_empty(kept, n, dtype=torch.float32) for n in (chunks * 2 * CHUNK, P * N, 1))
    of_x, of_y = (describe(t, [1, CHUNK, P]) for t in (x, y))
    of_b, of_c = (describe(t, [1, CHUNK, N]) for t in (b, c))
    given = (of_x, of_b, tiles * segments, length, heads, heads // groups, segments - 1, chunks)
    programs = min(tiles * segments, multiprocessors(x))
    launch(ends_kernel, programs, (*given, dt, a, rows, ends, decays), ends_work, x)
    given += (of_c, of_y, describe(rows.view(-1), [CHUNK]), ends, decays, a if d is None else d)
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
