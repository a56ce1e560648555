"""The template of pipeline.py for tiles that differ in length: programs take the next one from a counter.

Its works have two consumers, hold a slot for two steps, have a `tail` and one place for what belongs to a
tile; and beside the functions of any other (work.py):

    numbers(w, g)           the descriptor of a table in global memory that says every number from 0 to that
                            of the tiles four times, as copies take no less; there when the kernel before
                            this one has ended
    counter(w, g)           in global memory, zero when that kernel has ended
    approach(w, g, at)      asks for what belongs to a tile while the last one ends
    load(...)               waits for the kernel before this one at a tile's first step
    finish(...)             by way of a place of its own: what belongs to the next tile is loaded meanwhile

A program's first tile is that of its number: it asks nobody, and a program that has not begun, as another
kernel has its multiprocessor, keeps that tile and holds up no other. Only the producer takes tiles. For the
consumers it copies a tile's number from the table, as it copies what belongs to the tile and on the same
barrier; the next one comes when both have left the tile.
"""

from __future__ import annotations

from assay.tiles.assembler import heard, take
from assay.tiles.hopper import gl, jit, mbarrier, tma
from assay.tiles.pipeline import PRODUCER_REGISTERS, REGISTERS, one_step


@jit
def counted_pipeline(w: gl.constexpr, g):
    """The whole kernel: call it from a function that makes a tuple of the arguments."""
    room = w.room(w, g)
    full = gl.allocate_shared_memory(gl.int64, [w.stages, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [w.stages, 1], mbarrier.MBarrierLayout())
    turns = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    told = gl.allocate_shared_memory(gl.int32, [4], w.numbers(w, g).layout)
    for s in gl.static_range(w.stages):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=w.consumers)
    mbarrier.init(turns.index(0), count=2)  # told and entered
    mbarrier.init(turns.index(1), count=w.consumers)  # left
    gl.warp_specialize(
        [
            (_consume, (w, g, 0, room, full, empty, turns, told)),
            (_consume, (w, g, 1, room, full, empty, turns, told)),
            (_produce, (w, g, room, full, empty, turns, told)),
        ],
        [4, 1],
        [REGISTERS, PRODUCER_REGISTERS],
    )


@jit
def _produce(w: gl.constexpr, g, room, full, empty, turns, told):
    i = 0
    n = 0
    t = gl.program_id(0)
    while t < w.tiles(w, g):
        at = w.place(w, g, t, n)
        if n > 0:
            w.approach(w, g, at)
        mbarrier.wait(turns.index(1), (n & 1) ^ 1)
        _tell(w, g, t, n, told, turns.index(0))
        w.enter(w, g, at, room, turns.index(0))
        for k in range(w.steps(w, g, at)):
            slot = i % w.stages
            mbarrier.wait(empty.index(slot), ((i // w.stages) & 1) ^ 1)
            w.load(w, g, at, k, room, slot, full.index(slot))
            i += 1
        t = gl.num_programs(0) + take(w.counter(w, g))
        n += 1
    mbarrier.wait(turns.index(1), (n & 1) ^ 1)
    _tell(w, g, t, n, told, turns.index(0))
    mbarrier.arrive(turns.index(0), count=1)  # nothing belongs to the end


@jit
def _tell(w: gl.constexpr, g, t, n, told, bar):
    """Tile t is the n-th of this program, which knows its first. All that are not there are the end."""
    if n == 0:
        mbarrier.arrive(bar, count=1)
    else:
        mbarrier.expect(bar, w.numbers(w, g).block_type.nbytes)
        tma.async_copy_global_to_shared(w.numbers(w, g), [4 * min(t, w.tiles(w, g))], bar, told)


@jit
def _consume(w: gl.constexpr, g, part: gl.constexpr, room, full, empty, turns, told):
    i = 0
    n = 0
    t = gl.program_id(0)
    mbarrier.wait(turns.index(0), 0)
    while t < w.tiles(w, g):
        at = w.place(w, g, t, n)
        steps = w.steps(w, g, at) - 1
        heads = min(steps, w.heads)
        mbarrier.wait(full.index(i % w.stages), (i // w.stages) & 1)
        state = w.first(w, g, at, part, room, i % w.stages)
        i += 1
        for k in range(1, heads):
            state = one_step(w, g, at, part, k, state, room, i, full, empty, True)
            i += 1
        for k in range(heads, steps):
            state = one_step(w, g, at, part, k, state, room, i, full, empty, False)
            i += 1
        mbarrier.wait(full.index(i % w.stages), (i // w.stages) & 1)
        i += 1
        state = w.last(w, g, at, part, state, room, (i - 1) % w.stages)
        mbarrier.arrive(empty.index((i - 1) % w.stages), count=1)
        mbarrier.arrive(empty.index((i - 2) % w.stages), count=1)
        gl.thread_barrier()  # all threads have heard which tile this is
        mbarrier.arrive(turns.index(1), count=1)
        w.finish(w, g, at, part, state, room)
        n += 1
        mbarrier.wait(turns.index(0), n & 1)
        t = heard(told)
    tma.store_wait(0)
