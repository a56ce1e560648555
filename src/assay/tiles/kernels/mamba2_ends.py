"""The first of Mamba 2's kernels on Hopper (mamba2_hopper.py): what segments end in, and chunks' records.

It walks over a segment's chunks from its end, so that what is added never decays again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from assay.tiles.assembler import let_next_begin, widened
from assay.tiles.hopper import gl, jit, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from assay.tiles.kernels.attention_two_walks import as_operand
from assay.tiles.pipeline import pipeline
from assay.tiles.work import Work

CHUNK = 64
RECORD = 4 * CHUNK
"""What is kept of a chunk: s, r, what is left of the state at each row, and of each row at its end."""
P = 64
N = 128
LOG2_E: Any = gl.constexpr(1.4426950408889634)
ALL_IS_FORGOTTEN: Any = gl.constexpr(-256.0)
"""To the base of 2: a float32 of it is zero."""


@jit
def added(a, b):
    return a + b


@dataclass(frozen=True)
class Scan(Work):
    """g: x, b, tiles, T, heads, shared, the last segment, chunks of each, and what a kernel adds."""

    P: ClassVar[int] = P
    N: ClassVar[int] = N
    early: ClassVar[bool] = True

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
        return (w.pair(w, g, at, part) * ((g[6] + 1) * g[7]) + chunk) * 256

    @jit
    def state_places(w: gl.constexpr, g, at, part: gl.constexpr, segment):
        """By squares of 8: a warp then reads and writes whole lines."""
        row = gl.expand_dims(gl.arange(0, w.P, gl.SliceLayout(1, w.wide)), 1)
        column = gl.expand_dims(gl.arange(0, w.N, gl.SliceLayout(0, w.wide)), 0)
        place = row // 8 * (8 * w.N) + column // 8 * 64 + row % 8 * 8 + column % 8
        return w.slot(w, g, at, part, segment) * (w.P * w.N) + place

    @jit
    def own(w: gl.constexpr, g, part: gl.constexpr, room, slot):
        """x, transposed, in registers."""
        x = room[0].index(w.consumers * slot + part).reshape([64, w.P]).permute((1, 0))
        return gl.convert_layout(x.load(gl.DotOperandLayout(0, w.narrow, 2)), w.narrow)


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
        """What is left of a chunk's rows at the segment's end, where 2^after is left of the chunk's end, and
        the logarithm of what is left of its start; and keeps the chunk's record.

        In it a decay is not made stronger than it takes for nothing to be left: sums keep their digits so.
        The logarithm of a negative step is NaN, and so is all that comes of it."""
        decay = length * pace
        decay = gl.where(decay < ALL_IS_FORGOTTEN, ALL_IS_FORGOTTEN, decay)  # which leaves a NaN one
        sums, total = gl.associative_scan(decay, 0, added), gl.sum(decay, 0)
        reach = sums - gl.log2(length)
        line = gl.arange(0, 64, gl.BlockedLayout([2], [32], [4], [0]))
        place = w.rows_place(w, g, at, part, w.chunk(w, g, at, k)) + line
        is_there = (k < w.steps(w, g, at)) & (w.head(w, g, at, part) < g[4])
        gl.store(g[10] + place, sums, is_there)
        gl.store(g[10] + place + 64, reach, is_there)
        gl.store(g[10] + place + 128, gl.exp2(sums), is_there)
        gl.store(g[10] + place + 192, gl.exp2(total - reach), is_there)
        left = gl.exp2(after + total - reach)
        return gl.convert_layout(left, gl.SliceLayout(0, w.narrow)), after + total

    @jit
    def begin(w: gl.constexpr, g, at, part: gl.constexpr):
        """The first chunks' decays, made while the first rows are on their way."""
        pace = gl.load(g[9] + min(w.head(w, g, at, part), g[4] - 1)).to(gl.float32) * LOG2_E
        pace = gl.where(pace > 0, float("nan"), pace)
        now, soon = w.lengths(w, g, at, part, 0), w.lengths(w, g, at, part, 1)
        later, latest = w.lengths(w, g, at, part, 2), w.lengths(w, g, at, part, 3)
        left, after = w.lefts(w, g, at, part, 0, now, pace, 0.0)
        return left, after, soon, later, latest, pace

    @jit
    def first(w: gl.constexpr, g, at, part: gl.constexpr, room, slot, begun):
        left, after, soon, later, latest, pace = begun
        operand = w.operand(w, g, part, left, room, slot)
        left, after = w.lefts(w, g, at, part, 1, soon, pace, after)
        acc = gl.zeros([w.P, w.N], gl.float32, w.wide)
        return acc, left, after, later, latest, pace, operand

    @jit
    def operand(w: gl.constexpr, g, part: gl.constexpr, left, room, slot):
        """x as it will be left, for a product."""
        x = widened(w.own(w, g, part, room, slot), g[0].dtype)
        return as_operand(x * gl.expand_dims(left, 0), g[0].dtype, w.N)

    @jit
    def step(w: gl.constexpr, g, at, part: gl.constexpr, k, state, room, slot, is_head: gl.constexpr):
        """While the last chunk's product runs, this one's operand is made, and the next one's decays."""
        acc, left, after, soon, later, pace, operand = state
        before = (slot + w.stages - 1) % w.stages
        acc = warpgroup_mma(operand, room[1].index(before).reshape([64, w.N]), acc, is_async=True)
        gl.thread_barrier()  # else ptxas begins the product behind all that follows
        latest = w.lengths(w, g, at, part, k + 3)
        operand = w.operand(w, g, part, left, room, slot)
        left, after = w.lefts(w, g, at, part, k + 1, soon, pace, after)
        return warpgroup_mma_wait(0, (acc,)), left, after, later, latest, pace, operand

    @jit
    def last(w: gl.constexpr, g, at, part: gl.constexpr, state, room, slot):
        acc = warpgroup_mma(state[6], room[1].index(slot).reshape([64, w.N]), state[0], is_async=True)
        return warpgroup_mma_wait(0, (acc,)), state[2]

    @jit
    def finish(w: gl.constexpr, g, at, part: gl.constexpr, state, room):
        is_there = (w.head(w, g, at, part) < g[4]) & (at[3] < g[6])
        gl.store(g[11] + w.state_places(w, g, at, part, at[3]), state[0], is_there)
        gl.store(g[12] + w.slot(w, g, at, part, at[3]), state[1], is_there)


@jit
def ends_kernel(
    x, b, tiles, T, heads, shared, last, chunks, dt, a, rows, ends, decays, w: gl.constexpr
):  # fmt: skip
    pipeline(w, (x, b, tiles, T, heads, shared, last, chunks, dt, a, rows, ends, decays))
