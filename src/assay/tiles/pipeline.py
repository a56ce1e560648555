"""One template for asynchronous kernels: a producer fills a ring, consumers empty it, tile after tile.

A kernel is a `Work` (work.py): functions that say where a tile is, how a step of it is loaded, what a
step computes and what becomes of the result. The template owns the ring with its barriers, the partitions
with their registers, and the persistent loop over tiles.

Every step's data has one slot. A consumer gives it back after its step, or after the next one if products
may be in flight that long. What belongs to a tile rather than to a step (attention's queries) has a place of
its own, loaded by `enter`; with two of them the next tile's is loaded while this one is computed.
"""

from __future__ import annotations

from assay.tiles.hopper import gl, jit, mbarrier, tma

REGISTERS = gl.constexpr(240)
"""Of a consumer's thread."""
THIRD_REGISTERS = gl.constexpr(160)
"""If there are three."""
PRODUCER_REGISTERS = gl.constexpr(24)


@jit
def pipeline(w: gl.constexpr, g):
    """The whole kernel: call it from a function that makes a tuple of the arguments."""
    room = w.room(w, g)
    full = gl.allocate_shared_memory(gl.int64, [w.stages, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [w.stages, 1], mbarrier.MBarrierLayout())
    entered = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    left = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(w.stages):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=w.consumers)
    for s in gl.static_range(w.entries):
        mbarrier.init(entered.index(s), count=1)
        mbarrier.init(left.index(s), count=w.consumers)
    if w.consumers == 3:
        gl.warp_specialize(
            [
                (_consume, (w, g, 0, room, full, empty, entered, left)),
                (_consume, (w, g, 1, room, full, empty, entered, left)),
                (_consume, (w, g, 2, room, full, empty, entered, left)),
                (_produce, (w, g, room, full, empty, entered, left)),
            ],
            [4, 4, 1],
            [THIRD_REGISTERS, THIRD_REGISTERS, PRODUCER_REGISTERS],
        )
    elif w.consumers == 1:
        gl.warp_specialize(
            [
                (_consume, (w, g, 0, room, full, empty, entered, left)),
                (_produce, (w, g, room, full, empty, entered, left)),
            ],
            [1],
            [PRODUCER_REGISTERS],
        )
    else:
        gl.warp_specialize(
            [
                (_consume, (w, g, 0, room, full, empty, entered, left)),
                (_consume, (w, g, 1, room, full, empty, entered, left)),
                (_produce, (w, g, room, full, empty, entered, left)),
            ],
            [4, 1],
            [REGISTERS, PRODUCER_REGISTERS],
        )


@jit
def _produce(w: gl.constexpr, g, room, full, empty, entered, left):
    i = 0
    n = 0
    for t in range(gl.program_id(0), w.tiles(w, g), gl.num_programs(0)):
        at = w.place(w, g, t, n)
        if w.entries:
            mbarrier.wait(left.index(n % w.entries), ((n // w.entries) & 1) ^ 1)
            w.enter(w, g, at, room, entered.index(n % w.entries))
        for k in range(w.steps(w, g, at)):
            slot = i % w.stages
            mbarrier.wait(empty.index(slot), ((i // w.stages) & 1) ^ 1)
            w.load(w, g, at, k, room, slot, full.index(slot))
            i += 1
        n += 1


@jit
def _first(w: gl.constexpr, g, at, part: gl.constexpr, room, i, full):
    if w.early:
        begun = w.begin(w, g, at, part, room)
    mbarrier.wait(full.index(i % w.stages), (i // w.stages) & 1)
    if w.early:
        state = w.first(w, g, at, part, room, i % w.stages, begun)
    else:
        state = w.first(w, g, at, part, room, i % w.stages)
    return state


@jit
def _consume(w: gl.constexpr, g, part: gl.constexpr, room, full, empty, entered, left):
    i = 0
    n = 0
    for t in range(gl.program_id(0), w.tiles(w, g), gl.num_programs(0)):
        at = w.place(w, g, t, n)
        if w.entries:
            mbarrier.wait(entered.index(n % w.entries), (n // w.entries) & 1)
        steps = w.steps(w, g, at)
        if w.tail:
            steps -= 1
        heads = min(steps, w.heads)
        state = _first(w, g, at, part, room, i, full)
        if not w.holds:
            mbarrier.arrive(empty.index(i % w.stages), count=1)
        i += 1
        for k in range(1, heads):
            state = one_step(w, g, at, part, k, state, room, i, full, empty, True)
            i += 1
        for k in range(heads, steps):
            state = one_step(w, g, at, part, k, state, room, i, full, empty, False)
            i += 1
        if w.tail:
            mbarrier.wait(full.index(i % w.stages), (i // w.stages) & 1)
            i += 1
        state = w.last(w, g, at, part, state, room, (i - 1) % w.stages)
        if w.holds or w.tail:
            mbarrier.arrive(empty.index((i - 1) % w.stages), count=1)
        if w.holds and w.tail:
            mbarrier.arrive(empty.index((i - 2) % w.stages), count=1)
        if w.entries == 2:
            mbarrier.arrive(left.index(n % 2), count=1)
        w.finish(w, g, at, part, state, room)
        if w.entries == 1:
            mbarrier.arrive(left.index(0), count=1)
        n += 1
    tma.store_wait(0)


@jit
def one_step(
    w: gl.constexpr, g, at, part: gl.constexpr, k, state, room, i, full, empty, is_head: gl.constexpr
):
    slot = i % w.stages
    mbarrier.wait(full.index(slot), (i // w.stages) & 1)
    state = w.step(w, g, at, part, k, state, room, slot, is_head)
    if w.holds:
        slot = (i - 1) % w.stages
    mbarrier.arrive(empty.index(slot), count=1)
    return state


@jit
def grouped(t, rows, columns, group):
    """Tile t of a matrix of tiles: rows of them are walked together, whose operands stay in the cache."""
    width = group * columns
    first = (t // width) * group
    high = min(rows - first, group)
    return first + (t % width) % high, (t % width) // high


@jit
def balanced(t, n, tiles):
    """Another order of tiles whose first ones are the longest: every other round of programs goes backwards,
    so that all programs get as much."""
    programs = gl.num_programs(0)
    if (n % 2 == 1) & ((n + 1) * programs <= tiles):
        t = (2 * n + 1) * programs - 1 - t
    return t
