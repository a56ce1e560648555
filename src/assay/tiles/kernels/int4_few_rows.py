"""int4_gemm (int4_gemm.py) on Hopper for up to 8 rows of X: W goes from memory into registers, is unpacked
there, and never lies in shared memory.

A program has 16 rows of W, its four warps every fourth group of 128, each with sums of its own that are added
up at the end. A thread reads 16 bytes of a row at once, four words of eight numbers. Unpacked, these lie as
tensor cores want them but for their order along K, which does not matter as long as X has the same: with bits
of k from the highest, a group is in the order k4 k3, k1 k0, k6 k5, k2. Some groups of W, and the next of X,
are on their way while one is multiplied. Programs begin at different groups, which was measured to be faster.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import torch
import triton

from assay.tiles.assembler import four_bits
from assay.tiles.hopper import gl, jit, mma_v2
from assay.tiles.launch import start
from assay.tiles.work import Work

MOST_ROWS = 8


@dataclass(frozen=True)
class FewRows(Work):
    """Sizes and layouts; the kernel is not made of the template. g: x, words, scale, zero, out, M, N, groups,
    and how far apart rows of the first four lie.

    A stage is a group of W for each warp.
    """

    has_zeros: bool = False
    BM: ClassVar[int] = MOST_ROWS
    BN: ClassVar[int] = 16
    WARPS: ClassVar[int] = 4

    @property
    def sums(self) -> gl.NVMMADistributedLayout:
        """Of (warps, BN, BM)."""
        return gl.NVMMADistributedLayout([2, 0], [self.WARPS, 1, 1], [1, 16, 8])

    @property
    def words(self) -> gl.BlockedLayout:
        """Of (warps, BN, 16)."""
        return gl.BlockedLayout([1, 1, 4], [1, 8, 4], [self.WARPS, 1, 1], [2, 1, 0])

    @property
    def numbers(self) -> gl.DistributedLinearLayout:
        """Of (warps, BN, 16, 8): as words, a word eight times in one thread."""
        registers = [[0, 0, 0, 1], [0, 0, 0, 2], [0, 0, 0, 4], [0, 0, 1, 0], [0, 0, 2, 0], [0, 8, 0, 0]]
        lanes = [[0, 0, 4, 0], [0, 0, 8, 0], [0, 1, 0, 0], [0, 2, 0, 0], [0, 4, 0, 0]]
        warps, shape = [[1, 0, 0, 0], [2, 0, 0, 0]], [self.WARPS, self.BN, 16, 8]
        return gl.DistributedLinearLayout(registers, lanes, warps, [], shape)

    @property
    def x(self) -> gl.BlockedLayout:
        """Of (warps, BM, 128)."""
        return gl.BlockedLayout([1, 1, 32], [1, 8, 4], [self.WARPS, 1, 1], [2, 1, 0])

    @jit
    def rows(w: gl.constexpr, g, layout: gl.constexpr):
        """Of W. Those beyond its end are the last one, and not stored."""
        row = gl.program_id(0) * w.BN + gl.arange(0, w.BN, gl.SliceLayout(0, layout))
        return gl.minimum(gl.expand_dims(row, 0), g[6] - 1)

    @jit
    def group(w: gl.constexpr, g, step, layout: gl.constexpr):
        """One for each warp; past the last where there is none."""
        steps = gl.cdiv(g[7], w.WARPS)
        here = gl.program_id(0) % steps + step
        here -= gl.where(here < steps, 0, steps)
        group = here * w.WARPS + gl.arange(0, w.WARPS, gl.SliceLayout(1, layout))
        return gl.expand_dims(gl.where(step < steps, group, g[7]), 1)

    @jit
    def place(w: gl.constexpr, g, step, apart, size: gl.constexpr, layout: gl.constexpr):
        """Of what each row has for a group, and whether there is such a group."""
        group = w.group(w, g, step, layout)
        return w.rows(w, g, layout) * apart + group * size, group < g[7]

    @jit
    def weights(w: gl.constexpr, g, step):
        """Words, their scales, and zeros."""
        place, is_there = w.place(w, g, step, g[9], 16, gl.SliceLayout(2, w.words))
        column = gl.arange(0, 16, gl.SliceLayout(0, gl.SliceLayout(1, w.words)))[None, None, :]
        words = gl.load(g[1] + gl.expand_dims(place, 2) + column, gl.expand_dims(is_there, 2), other=0)
        place, is_there = w.place(w, g, step, g[10], 1, gl.SliceLayout(2, w.sums))
        scales = gl.load(g[2] + place, is_there, other=0.0)
        layout: gl.constexpr = gl.SliceLayout(2, gl.SliceLayout(3, w.numbers))
        zeros = gl.full([w.WARPS, w.BN], 8, gl.int32, layout)
        if w.has_zeros:
            place, is_there = w.place(w, g, step, g[11], 1, layout)
            zeros = gl.load(g[3] + place, is_there, other=0).to(gl.int32)
        return words, scales, zeros

    @jit
    def inputs(w: gl.constexpr, g, step):
        """Of X. Zeros beyond its rows and groups: whatever W is there, nothing is added."""
        row = gl.arange(0, w.BM, gl.SliceLayout(0, gl.SliceLayout(2, w.x)))[None, :, None]
        column = gl.arange(0, 128, gl.SliceLayout(0, gl.SliceLayout(1, w.x)))[None, None, :]
        group = gl.expand_dims(w.group(w, g, step, gl.SliceLayout(2, w.x)), 2)
        return gl.load(g[0] + row * g[8] + group * 128 + column, (row < g[5]) & (group < g[7]), other=0.0)

    @jit
    def product(w: gl.constexpr, words, zeros, x):
        words = gl.join(words, words)
        words = gl.join(words, words)
        words = gl.join(words, words).reshape([w.WARPS, w.BN, 16, 8])
        zeros = gl.expand_dims(gl.expand_dims(zeros, 2), 3)
        zeros = zeros + gl.zeros([w.WARPS, w.BN, 16, 8], gl.int32, w.numbers)
        a = four_bits(gl.convert_layout(words, w.numbers), zeros, x.dtype)
        a = a.reshape([w.WARPS, w.BN, 4, 4, 4, 2]).permute((0, 1, 3, 4, 2, 5))
        b = x.reshape([w.WARPS, w.BM, 4, 4, 2, 4]).permute((0, 3, 5, 2, 4, 1))
        a = gl.convert_layout(a.reshape([w.WARPS, w.BN, 128]), gl.DotOperandLayout(0, w.sums, 2))
        b = gl.convert_layout(b.reshape([w.WARPS, 128, w.BM]), gl.DotOperandLayout(1, w.sums, 2))
        return mma_v2(a, b, gl.zeros([w.WARPS, w.BN, w.BM], gl.float32, w.sums))


@jit
def few_rows_kernel(x, words, scale, zero, out, M, N, groups, x_row, w_row, s_row, z_row, w: gl.constexpr):
    g = x, words, scale, zero, out, M, N, groups, x_row, w_row, s_row, z_row
    ahead = ()
    for j in gl.static_range(w.stages):
        ahead = ahead + (w.weights(w, g, j),)
    x_ahead = w.inputs(w, g, 0)
    sums = gl.zeros([w.WARPS, w.BN, w.BM], gl.float32, w.sums)
    for step in range(0, gl.cdiv(groups, w.WARPS), w.stages):
        for j in gl.static_range(w.stages):
            here, x_here = ahead[j], x_ahead
            x_ahead = w.inputs(w, g, step + j + 1)
            ahead = ahead[:j] + (w.weights(w, g, step + j + w.stages),) + ahead[j + 1 :]
            scales = gl.expand_dims(here[1].to(gl.float32), 2)
            sums += w.product(w, here[0], here[2], x_here) * scales
    n = gl.program_id(0) * w.BN + gl.arange(0, w.BN, gl.SliceLayout(1, gl.SliceLayout(0, w.sums)))[:, None]
    m = gl.arange(0, w.BM, gl.SliceLayout(0, gl.SliceLayout(0, w.sums)))[None, :]
    gl.store(out + m * N + n, gl.sum(sums, 0).to(out.dtype.element_ty), (m < M) & (n < N))


@functools.cache
def work_of(has_zeros: bool) -> FewRows:
    """As many stages as registers have room for."""
    return FewRows(stages=3 if has_zeros else 4, has_zeros=has_zeros)


def few_rows_gemm(
    x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None
) -> torch.Tensor:
    out = x.new_empty(len(x), len(packed))
    words, zero = packed.view(torch.int32), packed if zeros is None else zeros
    work = work_of(zeros is not None)
    strides = (t.stride(0) for t in (x, words, scales, zero))
    start(
        few_rows_kernel, (triton.cdiv(len(packed), work.BN),),
        (x, words, scales, zero, out, *out.shape, scales.shape[1], *strides), x,
        w=work.constant, num_warps=work.WARPS,
    )  # fmt: skip
    return out
