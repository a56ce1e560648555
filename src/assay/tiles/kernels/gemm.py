"""C = epilogue(A @ B): bf16 or fp16 in, float32 inside.

A is (M, K); B is (K, N), or (N, K) as linear layers keep it. Tiles of 128 x 256, or 128 x 128 where there are few,
64 deep; two consumers of 64 rows each. The epilogue adds a bias, applies an activation, adds a residual, in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.tiles.hopper import fence_async_shared, gl, jit, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from assay.tiles.pipeline import pipeline
from assay.tiles.work import Work


@dataclass(frozen=True)
class Gemm(Work):
    stages: int = 3
    BN: int = 256
    BK: int = 64
    group: int = 8
    """Rows of tiles that are walked together, so that their operands stay in the L2 cache."""
    transposed: bool = False
    """B is given as (N, K)."""
    has_bias: bool = False
    has_residual: bool = False
    activation: str = ""

    @jit
    def room(w: gl.constexpr, g):
        a = gl.allocate_shared_memory(g[0].dtype, [2 * w.stages, 64, w.BK], g[0].layout)
        b = gl.allocate_shared_memory(g[1].dtype, [w.stages] + g[1].block_type.shape, g[1].layout)
        c = gl.allocate_shared_memory(g[2].dtype, [2, 64, w.BN], g[2].layout)
        return a, b, c

    @jit
    def tiles(w: gl.constexpr, g):
        return gl.cdiv(g[3], 128) * gl.cdiv(g[4], w.BN)

    @jit
    def place(w: gl.constexpr, g, t):
        rows = gl.cdiv(g[3], 128)
        width = w.group * gl.cdiv(g[4], w.BN)
        first = (t // width) * w.group
        high = min(rows - first, w.group)
        return first + (t % width) % high, (t % width) // high

    @jit
    def steps(w: gl.constexpr, g, at):
        return gl.cdiv(g[5], w.BK)

    @jit
    def load(w: gl.constexpr, g, at, k, room, slot, bar):
        mbarrier.expect(bar, 2 * g[0].block_type.nbytes + g[1].block_type.nbytes)
        for half in gl.static_range(2):
            corner = [at[0] * 128 + half * 64, k * w.BK]
            tma.async_copy_global_to_shared(g[0], corner, bar, room[0].index(2 * slot + half))
        if w.transposed:
            tma.async_copy_global_to_shared(g[1], [at[1] * w.BN, k * w.BK], bar, room[1].index(slot))
        else:
            tma.async_copy_global_to_shared(g[1], [k * w.BK, at[1] * w.BN], bar, room[1].index(slot))

    @jit
    def product(w: gl.constexpr, part: gl.constexpr, acc, room, slot, use_acc):
        b = room[1].index(slot)
        if w.transposed:
            b = b.permute((1, 0))
        acc = warpgroup_mma(room[0].index(2 * slot + part), b, acc, use_acc=use_acc, is_async=True)
        return warpgroup_mma_wait(1, (acc,))  # which leaves this one in flight

    @jit
    def first(w: gl.constexpr, g, at, part: gl.constexpr, room, slot):
        layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, w.BN, 16])
        return w.product(w, part, gl.zeros([64, w.BN], gl.float32, layout), room, slot, False)

    @jit
    def step(w: gl.constexpr, g, at, part: gl.constexpr, k, acc, room, slot, before):
        return w.product(w, part, acc, room, slot, True)

    @jit
    def last(w: gl.constexpr, g, at, part: gl.constexpr, acc, room, slot):
        return warpgroup_mma_wait(0, (acc,))

    @jit
    def finish(w: gl.constexpr, g, at, part: gl.constexpr, acc, room):
        layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, w.BN, 16])
        row = at[0] * 128 + part * 64
        column = at[1] * w.BN
        if w.has_bias:
            n = column + gl.arange(0, w.BN, gl.SliceLayout(0, layout))
            acc += gl.expand_dims(gl.load(g[6] + n, n < g[4], other=0.0).to(gl.float32), 0)
        if w.activation == "relu":
            acc = gl.maximum(acc, 0.0)
        if w.activation == "silu":
            acc = acc / (1 + gl.exp2(acc * -1.4426950408889634))
        if w.activation == "gelu":
            acc = acc / (1 + gl.exp2(acc * (-2.302208198144325 - 0.1029432396800475 * acc * acc)))
        if w.has_residual:
            m = gl.expand_dims(row + gl.arange(0, 64, gl.SliceLayout(1, layout)), 1)
            n = gl.expand_dims(column + gl.arange(0, w.BN, gl.SliceLayout(0, layout)), 0)
            inside = (m < g[3]) & (n < g[4])
            acc += gl.load(g[7] + m * g[4] + n, inside, other=0.0).to(gl.float32)
        tma.store_wait(0)
        room[2].index(part).store(acc.to(g[2].dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(g[2], [row, column], room[2].index(part))


@jit
def gemm_kernel(a, b, c, M, N, K, bias, residual, w: gl.constexpr):
    pipeline(w, (a, b, c, M, N, K, bias, residual))
