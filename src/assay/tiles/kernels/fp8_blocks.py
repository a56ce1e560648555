"""C = (A * scale_a) @ (B * scale_b)^T on Hopper, with scales of blocks (fp8_gemm.py).

The product of a block of K begins at zero; it is scaled and added up in float32. While one consumer adds,
another multiplies. There are three tiles:

    128 x 128    two consumers, which have two products in flight: for few tiles
    256 x 128    two, each with two products, one in the registers of the other
    192 x 128    three: most work for a multiprocessor, and most tiles that are no more than begun at the end

Scales come with the operands, by copies. A consumer that loads them itself waits for the L2 cache in every
step, however far ahead it loads: what a step has asked for moves to other registers before it ends. Both are
read as lines of numbers, those of A block after block of K and those of B row after row; copies of lines
begin at multiples of 16 bytes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import triton
from torch import Tensor
from torch.nn.functional import pad

from assay.tiles.assembler import multiplied
from assay.tiles.hopper import fence_async_shared, gl, jit, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from assay.tiles.launch import aligned, describe, launch, multiprocessors, tile_that_ends_first
from assay.tiles.pipeline import grouped, pipeline
from assay.tiles.work import Work

BLOCK = 128
"""Entries of K, and rows of B, that share a scale."""
TILES = ((128, 128, 0.448, 0.8), (256, 128, 0.826, 2.0), (192, 128, 0.608, 1.0))
"""Microseconds of a block of K and of the rest of a tile, by how long squares of 4,096 and 8,192 took."""


@dataclass(frozen=True)
class Fp8Blocks(Work):
    """g: A, B, C, M, N, K, scales of A, scales of B, how many the former are for a block of K."""

    stages: int = 3
    halves: int = 1
    """Blocks of 64 rows that a consumer has."""
    blocks: int = 2
    """Of K in a step: all of their products are in flight at once."""
    places: int = 1
    """For results of a consumer on their way out."""
    group: int = 8
    """Rows of tiles that are walked together, so that their operands stay in the L2 cache."""
    holds: ClassVar[bool] = False

    @property
    def layout(self) -> gl.NVMMADistributedLayout:
        return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 32])

    @property
    def rows(self) -> int:
        """Of a tile, in blocks of 64."""
        return self.halves * self.consumers

    @jit
    def room(w: gl.constexpr, g):
        """For one scale of B there are 128 bytes, at multiples of which copies end."""
        n: gl.constexpr = w.blocks * w.stages
        a = gl.allocate_shared_memory(g[0].dtype, [w.rows * n, 64, 128], g[0].layout)
        b = gl.allocate_shared_memory(g[1].dtype, [n, 128, 128], g[1].layout)
        c = gl.allocate_shared_memory(g[2].dtype, [w.consumers * w.places, 64, 64], g[2].layout)
        of_a = gl.allocate_shared_memory(gl.float32, [w.rows * n, 64], g[6].layout)
        return a, b, c, of_a, gl.allocate_shared_memory(gl.float32, [n, 32], g[7].layout)

    @jit
    def tiles(w: gl.constexpr, g):
        return gl.cdiv(g[3], 64 * w.rows) * gl.cdiv(g[4], 128)

    @jit
    def place(w: gl.constexpr, g, t, n):
        return grouped(t, gl.cdiv(g[3], 64 * w.rows), gl.cdiv(g[4], 128), w.group)

    @jit
    def steps(w: gl.constexpr, g, at):
        return gl.cdiv(g[5], 128 * w.blocks)

    @jit
    def scaled_by(w: gl.constexpr, g, at, block):
        """Which scale of B; that of the last block where there are no more."""
        blocks = gl.cdiv(g[5], 128)
        return at[1] * blocks + min(block, blocks - 1)

    @jit
    def load(w: gl.constexpr, g, at, k, room, slot, bar):
        of_rows: gl.constexpr = w.rows * (g[0].block_type.nbytes + g[6].block_type.nbytes)
        mbarrier.expect(bar, w.blocks * (of_rows + g[1].block_type.nbytes + g[7].block_type.nbytes))
        for q in gl.static_range(w.blocks):
            place, block = w.blocks * slot + q, w.blocks * k + q
            for p in gl.static_range(w.rows):
                row, part = (at[0] * w.rows + p) * 64, w.rows * place + p
                tma.async_copy_global_to_shared(g[0], [row, block * 128], bar, room[0].index(part))
                tma.async_copy_global_to_shared(g[6], [block * g[8] + row], bar, room[3].index(part))
            tma.async_copy_global_to_shared(g[1], [at[1] * 128, block * 128], bar, room[1].index(place))
            first = w.scaled_by(w, g, at, block) // 4 * 4
            tma.async_copy_global_to_shared(g[7], [first], bar, room[4].index(place))

    @jit
    def product(w: gl.constexpr, part: gl.constexpr, half: gl.constexpr, room, place, made, use_acc):
        """In flight."""
        a = room[0].index(w.rows * place + w.halves * part + half)
        return warpgroup_mma(a, room[1].index(place).permute((1, 0)), made, use_acc=use_acc, is_async=True)

    @jit
    def scale(w: gl.constexpr, g, at, part: gl.constexpr, half: gl.constexpr, block, room, place):
        layout: gl.constexpr = gl.SliceLayout(1, w.layout)
        apart: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
        of_a = room[3].index(w.rows * place + w.halves * part + half).load(layout)
        of_b = room[4].index(place)._reinterpret(gl.float32, [32, 1], apart)
        made = of_a * of_b.index(w.scaled_by(w, g, at, block) % 4).load(layout)
        if w.blocks == 2:  # of which the last may be none
            made = gl.where(block * 128 < g[5], made, 0.0)
        return gl.expand_dims(made, 1)

    @jit
    def first(w: gl.constexpr, g, at, part: gl.constexpr, room, slot):
        zeros = gl.zeros([64, 128], gl.float32, w.layout)
        return w.step(w, g, at, part, 0, (zeros, zeros, zeros), room, slot, True)

    @jit
    def step(w: gl.constexpr, g, at, part: gl.constexpr, k, state, room, slot, is_head: gl.constexpr):
        """The sums of each half, and a product whose sums have been taken: in its registers comes the next.
        That this one is not added to it is known when it runs, or the compiler takes others."""
        one, two, made = state
        if w.blocks == 2:
            zeros = gl.zeros([64, 128], gl.float32, w.layout)
            soon = w.product(w, part, 0, room, 2 * slot, zeros, False)
            later = w.product(w, part, 0, room, 2 * slot + 1, zeros, False)
            scale = w.scale(w, g, at, part, 0, 2 * k, room, 2 * slot)
            one = multiplied(warpgroup_mma_wait(1, (soon,)), scale, one)
            scale = w.scale(w, g, at, part, 0, 2 * k + 1, room, 2 * slot + 1)
            one = multiplied(warpgroup_mma_wait(0, (later,)), scale, one)
        else:
            made = w.product(w, part, 0, room, slot, made, g[5] < 0)
            scale = w.scale(w, g, at, part, 0, k, room, slot)
            made = warpgroup_mma_wait(0, (made,))
            one = multiplied(made, scale, one)
            if w.halves == 2:
                made = w.product(w, part, 1, room, slot, made, g[5] < 0)
                scale = w.scale(w, g, at, part, 1, k, room, slot)
                made = warpgroup_mma_wait(0, (made,))
                two = multiplied(made, scale, two)
        return one, two, made

    @jit
    def last(w: gl.constexpr, g, at, part: gl.constexpr, state, room, slot):
        return state[0], state[1]

    @jit
    def finish(w: gl.constexpr, g, at, part: gl.constexpr, state, room):
        for half in gl.static_range(w.halves):
            row = (at[0] * w.rows + part * w.halves + half) * 64
            sides = gl.split(gl.permute(gl.reshape(state[half], [64, 2, 64]), [0, 2, 1]))
            for side in gl.static_range(2):
                where = room[2].index(part * w.places + side % w.places)
                tma.store_wait(w.places - 1)
                where.store(sides[side].to(g[2].dtype))
                fence_async_shared()
                tma.async_copy_shared_to_global(g[2], [row, at[1] * 128 + side * 64], where)


@jit
def fp8_blocks_kernel(a, b, c, M, N, K, scales_a, scales_b, a_step, w: gl.constexpr):
    pipeline(w, (a, b, c, M, N, K, scales_a, scales_b, a_step))


@functools.lru_cache(maxsize=4096)
def choose_blocks(m: int, n: int, k: int, processors: int) -> Fp8Blocks:
    rows, _ = tile_that_ends_first(TILES, m, n, triton.cdiv(k, BLOCK), processors)
    if rows == 192:
        return Fp8Blocks(stages=4, consumers=3, blocks=1, places=2)
    return Fp8Blocks(halves=2, blocks=1, places=2) if rows == 256 else Fp8Blocks()


def multiply_blocks(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, c: Tensor) -> None:
    """Into c; operands and c can be described."""
    (m, k), n = a.shape, b.shape[0]
    work, processors = choose_blocks(m, n, k, multiprocessors(a)), multiprocessors(a)
    of_a = aligned(pad(scale_a.T, (0, -m % 4)) if m % 4 else scale_a.T.contiguous())
    of_b = aligned(scale_b.contiguous())
    blocks = describe(a, [64, 128]), describe(b, [128, 128]), describe(c, [64, 64])
    scales = describe(of_a.view(-1), [64]), describe(of_b.view(-1), [32])
    given = (*blocks, m, n, k, *scales, of_a.shape[1])
    tiles = triton.cdiv(m, 64 * work.rows) * triton.cdiv(n, 128)
    launch(fp8_blocks_kernel, min(tiles, processors), given, work, a)
