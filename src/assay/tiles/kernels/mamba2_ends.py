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
    together: int = 8
    """Chunks whose decays are made at once: while a tile's first rows are on their way, and then as many
    steps later. In every step, they would be what the step waits for."""

    @jit
    def room(w: gl.constexpr, g):
        let_next_begin()
        line: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
        x = gl.allocate_shared_memory(g[0].dtype, [w.consumers * w.stages, 1, 64, w.P], g[0].layout)
        b = gl.allocate_shared_memory(g[1].dtype, [w.stages, 1, 64, w.N], g[1].layout)
        left = gl.allocate_shared_memory(gl.float32, [w.consumers * w.together, 64], line)
        after = gl.allocate_shared_memory(gl.float32, [w.consumers * w.together, 1], line)
        return x, b, left, after

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
    def decays(w: gl.constexpr, g, at, part: gl.constexpr, k, after, room):
        """Of the chunks from step k on, where 2^after is left of what they end in: keeps their records, and
        for the steps the logarithms of what is left of each row at its chunk's end, and of all that comes
        before it at the segment's.

        In them a decay is not made stronger than it takes for nothing to be left: sums keep their digits so.
        The logarithm of a negative step is NaN, and so is all that comes of it."""
        grid: gl.constexpr = gl.BlockedLayout([1, 2], [1, 32], [4, 1], [1, 0])
        k += gl.expand_dims(gl.arange(0, w.together, gl.SliceLayout(1, grid)), 1)
        line = gl.expand_dims(gl.arange(0, 64, gl.SliceLayout(0, grid)), 0)
        chunk, head = w.chunk(w, g, at, k), min(w.head(w, g, at, part), g[4] - 1)
        row, is_step = chunk * 64 + line, k < w.steps(w, g, at)
        place = (at[0] * g[3] + row) * g[4] + head
        length = gl.load(g[8] + place, (row < g[3]) & is_step, other=0.0).to(gl.float32)
        pace = gl.load(g[9] + head).to(gl.float32) * LOG2_E
        decay = length * gl.where(pace > 0, float("nan"), pace)
        decay = gl.where(decay < ALL_IS_FORGOTTEN, ALL_IS_FORGOTTEN, decay)  # which leaves a NaN one
        sums, total = gl.associative_scan(decay, 1, added), gl.sum(decay, 1)
        reach = sums - gl.log2(length)
        left = gl.expand_dims(total, 1) - reach
        place = w.rows_place(w, g, at, part, chunk) + line
        is_there = is_step & (w.head(w, g, at, part) < g[4])
        gl.store(g[10] + place, sums, is_there)
        gl.store(g[10] + place + 64, reach, is_there)
        gl.store(g[10] + place + 128, gl.exp2(sums), is_there)
        gl.store(g[10] + place + 192, gl.exp2(left), is_there)
        square: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
        room[2]._reinterpret(gl.float32, [w.consumers, w.together, 64], square).index(part).store(left)
        total = gl.convert_layout(total, gl.BlockedLayout([1], [32], [4], [0]))
        after = after + gl.associative_scan(total, 0, added)
        line_of: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
        room[3]._reinterpret(gl.float32, [w.consumers, w.together], line_of).index(part).store(after)

    @jit
    def begin(w: gl.constexpr, g, at, part: gl.constexpr, room):
        """The first chunks' decays, made while the first rows are on their way."""
        w.decays(w, g, at, part, 0, 0.0, room)

    @jit
    def first(w: gl.constexpr, g, at, part: gl.constexpr, room, slot, begun):
        none = gl.zeros([1], gl.float32, gl.SliceLayout(0, w.narrow))
        operand, after = w.operand(w, g, part, 0, none, room, slot)
        return gl.zeros([w.P, w.N], gl.float32, w.wide), after, operand

    @jit
    def operand(w: gl.constexpr, g, part: gl.constexpr, k, after, room, slot):
        """x as it will be left, for a product; and what is left of what comes before."""
        place = part * w.together + k % w.together
        left = gl.exp2(room[2].index(place).load(gl.SliceLayout(0, w.narrow)) + after)
        x = widened(w.own(w, g, part, room, slot), g[0].dtype) * gl.expand_dims(left, 0)
        after = room[3].index(place).load(gl.SliceLayout(0, w.narrow))
        return as_operand(x, g[0].dtype, w.N), after

    @jit
    def step(w: gl.constexpr, g, at, part: gl.constexpr, k, state, room, slot, is_head: gl.constexpr):
        """While the last chunk's product runs, this one's operand is made."""
        acc, after, operand = state
        before = (slot + w.stages - 1) % w.stages
        acc = warpgroup_mma(operand, room[1].index(before).reshape([64, w.N]), acc, is_async=True)
        gl.thread_barrier()  # else ptxas begins the product behind all that follows
        if k % w.together == 0:
            w.decays(w, g, at, part, k, gl.max(after, 0), room)
        operand, after = w.operand(w, g, part, k, after, room, slot)
        return warpgroup_mma_wait(0, (acc,)), after, operand

    @jit
    def last(w: gl.constexpr, g, at, part: gl.constexpr, state, room, slot):
        acc = warpgroup_mma(state[2], room[1].index(slot).reshape([64, w.N]), state[0], is_async=True)
        return warpgroup_mma_wait(0, (acc,)), gl.max(state[1], 0)

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
