"""int4_gemm (int4_gemm.py) on Hopper for many rows of X: W comes in its four bits, is unpacked in registers,
and is the left side of a product of Y^T.

A step is one group of 128 or two: 64 rows of W for each consumer, and BM rows of X. A thread has the bytes
of a row that tensor cores want from it: two numbers each, one of every four. While the product of one group
runs, that of the other is unpacked or scaled and added up in float32, or, where sums have no room for two,
the other consumer does so.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import torch
import triton

from assay.tiles.assembler import two_halves
from assay.tiles.hopper import fence_async_shared, gl, jit, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from assay.tiles.kernel import MOST_ELEMENTS
from assay.tiles.launch import can_be_described, describe, launch, multiprocessors, runs_on_hopper
from assay.tiles.pipeline import pipeline
from assay.tiles.work import Work

GROUP = 128
MOST_BYTES = 180_000
"""Of shared memory for what is on its way; results have the rest."""


@dataclass(frozen=True)
class Int4Gemm(Work):
    """g: words, x, y, M, N, groups, scales, how far apart their rows are, zeros, and theirs."""

    stages: int = 6
    BM: int = 128
    blocks: int = 2
    """Groups of a step."""
    has_zeros: bool = False
    holds: ClassVar[bool] = False

    @property
    def sums(self) -> gl.NVMMADistributedLayout:
        """Of (64, BM)."""
        return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, self.BM, 16])

    @property
    def numbers(self) -> gl.DistributedLinearLayout:
        """Of (64, 16, 4, 2), a row's words, their bytes, and the halves of these."""
        registers = [[0, 0, 0, 1], [0, 1, 0, 0], [0, 2, 0, 0], [0, 4, 0, 0], [0, 8, 0, 0], [8, 0, 0, 0]]
        lanes = [[0, 0, 1, 0], [0, 0, 2, 0], [1, 0, 0, 0], [2, 0, 0, 0], [4, 0, 0, 0]]
        return gl.DistributedLinearLayout(
            registers, lanes, [[16, 0, 0, 0], [32, 0, 0, 0]], [], [64, 16, 4, 2]
        )

    @jit
    def room(w: gl.constexpr, g):
        count: gl.constexpr = w.consumers * w.blocks * w.stages
        words = gl.allocate_shared_memory(g[0].dtype, [count, 64, 16], g[0].layout)
        x = gl.allocate_shared_memory(g[1].dtype, [w.blocks * w.stages, w.BM, 128], g[1].layout)
        return words, x, gl.allocate_shared_memory(g[2].dtype, [w.consumers, w.BM, 64], g[2].layout)

    @jit
    def tiles(w: gl.constexpr, g):
        return gl.cdiv(g[3], w.BM) * gl.cdiv(g[4], 64 * w.consumers)

    @jit
    def place(w: gl.constexpr, g, t, n):
        """Its first row of X, and of W: the same rows of W one after the other."""
        blocks = gl.cdiv(g[3], w.BM)
        return t % blocks * w.BM, t // blocks * (64 * w.consumers)

    @jit
    def steps(w: gl.constexpr, g, at):
        return gl.cdiv(g[5], w.blocks)

    @jit
    def load(w: gl.constexpr, g, at, k, room, slot, bar):
        mbarrier.expect(bar, w.blocks * (w.consumers * g[0].block_type.nbytes + g[1].block_type.nbytes))
        for block in gl.static_range(w.blocks):
            place, group = w.blocks * slot + block, w.blocks * k + block
            for part in gl.static_range(w.consumers):
                words = room[0].index(w.consumers * place + part)
                tma.async_copy_global_to_shared(g[0], [at[1] + part * 64, group * 16], bar, words)
            tma.async_copy_global_to_shared(g[1], [at[0], group * 128], bar, room[1].index(place))

    @jit
    def of_rows(w: gl.constexpr, g, at, part: gl.constexpr, group, pointer, apart, layout: gl.constexpr):
        """What rows of W have for a group."""
        row = at[1] + part * 64 + gl.arange(0, 64, layout)
        return gl.load(pointer + row * apart + group, (row < g[4]) & (group < g[5]), other=0)

    @jit
    def scales(w: gl.constexpr, g, at, part: gl.constexpr, k):
        return w.of_rows(w, g, at, part, k, g[6], g[7], gl.SliceLayout(1, w.sums)).to(gl.float32)

    @jit
    def zeros(w: gl.constexpr, g, at, part: gl.constexpr, k):
        layout: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, w.numbers)))
        zeros = gl.full([64], 8, gl.int32, layout)
        if w.has_zeros:
            zeros = w.of_rows(w, g, at, part, k, g[8], g[9], layout).to(gl.int32)
        return zeros

    @jit
    def weights(w: gl.constexpr, part: gl.constexpr, room, slot, zeros, dtype: gl.constexpr):
        """W less its zeros, as the left side of a product."""
        bytes: gl.constexpr = gl.SliceLayout(3, w.numbers)
        words = room[0].index(w.consumers * slot + part).load(gl.SliceLayout(2, bytes))
        shift = 8 * gl.arange(0, 4, gl.SliceLayout(0, gl.SliceLayout(1, bytes)))[None, None, :]
        byte = gl.expand_dims(words, 2) >> shift
        zeros = gl.expand_dims(gl.expand_dims(gl.expand_dims(zeros, 1), 2), 3)
        twice = gl.convert_layout(gl.join(byte, byte), w.numbers)
        a = two_halves(twice, zeros + gl.zeros([64, 16, 4, 2], gl.int32, w.numbers), dtype).reshape([64, 128])
        return gl.convert_layout(a, gl.DotOperandLayout(0, w.sums, 2))

    @jit
    def product(w: gl.constexpr, g, part: gl.constexpr, room, place, zeros):
        """In flight."""
        a = w.weights(w, part, room, place, zeros, g[1].dtype)
        x = room[1].index(place).permute((1, 0))
        return warpgroup_mma(a, x, gl.zeros([64, w.BM], gl.float32, w.sums), use_acc=False, is_async=True)

    @jit
    def added(w: gl.constexpr, g, at, part: gl.constexpr, k, state, room, slot):
        """The sums with step k, and scales and zeros of the next."""
        sums, scales, zeros = state
        first = w.blocks * (k + 1)
        one = w.product(w, g, part, room, w.blocks * slot, zeros[0])
        ahead = (w.scales(w, g, at, part, first),)
        zeros_ahead = (w.zeros(w, g, at, part, first),)
        if w.blocks == 2:
            two = w.product(w, g, part, room, 2 * slot + 1, zeros[1])
            ahead = ahead + (w.scales(w, g, at, part, first + 1),)
            zeros_ahead = zeros_ahead + (w.zeros(w, g, at, part, first + 1),)
            sums += warpgroup_mma_wait(1, (one,)) * gl.expand_dims(scales[0], 1)
            sums += warpgroup_mma_wait(0, (two,)) * gl.expand_dims(scales[1], 1)
        else:
            sums += warpgroup_mma_wait(0, (one,)) * gl.expand_dims(scales[0], 1)
        return sums, ahead, zeros_ahead

    @jit
    def first(w: gl.constexpr, g, at, part: gl.constexpr, room, slot):
        sums = gl.zeros([64, w.BM], gl.float32, w.sums)
        scales, zeros = (), ()
        for block in gl.static_range(w.blocks):
            scales = scales + (w.scales(w, g, at, part, block),)
            zeros = zeros + (w.zeros(w, g, at, part, block),)
        return w.added(w, g, at, part, 0, (sums, scales, zeros), room, slot)

    @jit
    def step(w: gl.constexpr, g, at, part: gl.constexpr, k, state, room, slot, is_head: gl.constexpr):
        return w.added(w, g, at, part, k, state, room, slot)

    @jit
    def last(w: gl.constexpr, g, at, part: gl.constexpr, state, room, slot):
        return state[0]

    @jit
    def finish(w: gl.constexpr, g, at, part: gl.constexpr, sums, room):
        tma.store_wait(0)
        room[2].index(part).permute((1, 0)).store(sums.to(g[2].dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(g[2], [at[0], at[1] + part * 64], room[2].index(part))


@jit
def int4_gemm_kernel(words, x, y, M, N, groups, scale, s_row, zero, z_row, w: gl.constexpr):
    pipeline(w, (words, x, y, M, N, groups, scale, s_row, zero, z_row))


def is_for(*given: torch.Tensor) -> bool:
    """X, W, scales and, if there are any, zeros: groups are of 128, rows begin where copies can, and places
    are numbers of 32 bits."""
    x, packed, scales = given[:3]
    if x.shape[1] != GROUP * scales.shape[1] or not runs_on_hopper(x):
        return False
    if any(len(tensor) * tensor.stride(0) > MOST_ELEMENTS for tensor in given):
        return False
    return can_be_described(x) and can_be_described(packed)


@functools.lru_cache(maxsize=4096)
def choose(m: int, n: int, processors: int, has_zeros: bool) -> Int4Gemm:
    """Sums of 128 rows of X have no room for two products; consumers share X where there are tiles enough."""
    BM = min(max(triton.next_power_of_2(m), 16), 128)
    consumers = 2 if triton.cdiv(m, BM) * triton.cdiv(n, 128) >= processors * 3 // 4 else 1
    blocks = 1 if BM == 128 else 2
    stage_bytes = blocks * (consumers * 64 * 64 + BM * GROUP * 2)
    stages = min(MOST_BYTES // stage_bytes, 6)
    return Int4Gemm(stages=stages, consumers=consumers, BM=BM, blocks=blocks, has_zeros=has_zeros)


def gemm_of_words(
    x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None
) -> torch.Tensor:
    (m, _), n = x.shape, len(packed)
    y = x.new_empty(m, triton.cdiv(n, 8) * 8)[:, :n]  # rows begin at 16 bytes
    processors = multiprocessors(x)
    work = choose(m, n, processors, zeros is not None)
    zero = packed if zeros is None else zeros
    arguments = (
        describe(packed.view(torch.int32), [64, 16]),
        describe(x, [work.BM, GROUP]),
        describe(y, [work.BM, 64]),
        *(m, n, scales.shape[1]),
        *(scales, scales.stride(0), zero, zero.stride(0)),
    )
    tiles = triton.cdiv(m, work.BM) * triton.cdiv(n, 64 * work.consumers)
    launch(int4_gemm_kernel, min(tiles, processors), arguments, work, x)
    return y.contiguous()
