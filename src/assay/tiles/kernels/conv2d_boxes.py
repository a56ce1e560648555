"""Convolution for Hopper, with bias, and relu or with it the maximum of each 2 x 2 square: see conv2d.py.

A product of matrices whose left side is never written down. Rows are positions of the convolution, 64 to a
box of some images, rows and columns, whose channels a copy by descriptor brings as they lie in x, moved by
where the tap is; what lies outside of x is zero there. A step is 64 channels of one tap.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.tiles.hopper import fence_async_shared, gl, jit, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from assay.tiles.pipeline import grouped, pipeline
from assay.tiles.work import Work


@dataclass(frozen=True)
class Convolution(Work):
    """Of g: x, the weight, y, the bias, the convolution's sides, the outputs, and the geometry."""

    stages: int = 4
    BN: int = 256
    images: int = 1
    rows: int = 8
    columns: int = 8
    """Sides of a box."""
    S: int = 3
    taps: int = 9
    blocks: int = 1
    """Of 64 channels."""
    group: int = 16
    has_bias: bool = False
    relu: bool = False
    pooled: bool = False

    @property
    def layout(self) -> gl.NVMMADistributedLayout:
        """Of sums."""
        return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, self.BN, 16])

    @jit
    def room(w: gl.constexpr, g):
        x = gl.allocate_shared_memory(
            g[0].dtype, [w.consumers * w.stages] + g[0].block_type.shape, g[0].layout
        )
        weight = gl.allocate_shared_memory(g[1].dtype, [w.stages] + g[1].block_type.shape, g[1].layout)
        return (
            x,
            weight,
            gl.allocate_shared_memory(g[2].dtype, [w.consumers] + g[2].block_type.shape, g[2].layout),
        )

    @jit
    def boxes(w: gl.constexpr, g):
        """How many there are down, across, and in all."""
        down, across = gl.cdiv(g[5], w.rows), gl.cdiv(g[6], w.columns)
        return down, across, gl.cdiv(g[4], w.images) * down * across

    @jit
    def tiles(w: gl.constexpr, g):
        return gl.cdiv(w.boxes(w, g)[2], w.consumers) * gl.cdiv(g[7], w.BN)

    @jit
    def place(w: gl.constexpr, g, t, n):
        """The first box and the first output."""
        high = gl.cdiv(w.boxes(w, g)[2], w.consumers)
        row, column = grouped(t, high, gl.cdiv(g[7], w.BN), w.group)
        return row * w.consumers, column * w.BN

    @jit
    def box(w: gl.constexpr, g, k):
        """Its first image, row and column."""
        down, across, _ = w.boxes(w, g)
        return k // (down * across) * w.images, k // across % down * w.rows, k % across * w.columns

    @jit
    def steps(w: gl.constexpr, g, at):
        return w.taps * w.blocks

    @jit
    def load(w: gl.constexpr, g, at, k, room, slot, bar):
        tap, channel = k // w.blocks, k % w.blocks * 64
        down, across = tap // w.S * g[10] - g[8], tap % w.S * g[11] - g[9]
        mbarrier.expect(bar, w.consumers * g[0].block_type.nbytes + g[1].block_type.nbytes)
        for part in gl.static_range(w.consumers):
            image, i, j = w.box(w, g, at[0] + part)
            corner = [image, i + down, j + across, channel]
            tma.async_copy_global_to_shared(g[0], corner, bar, room[0].index(w.consumers * slot + part))
        tma.async_copy_global_to_shared(g[1], [at[1], tap, channel], bar, room[1].index(slot))

    @jit
    def product(w: gl.constexpr, part: gl.constexpr, acc, room, slot, use_acc):
        x = room[0].index(w.consumers * slot + part).reshape([64, 64])
        weight = room[1].index(slot).reshape([w.BN, 64]).permute((1, 0))
        acc = warpgroup_mma(x, weight, acc, use_acc=use_acc, is_async=True)
        return warpgroup_mma_wait(1, (acc,))  # which leaves this one in flight

    @jit
    def first(w: gl.constexpr, g, at, part: gl.constexpr, room, slot):
        return w.product(w, part, gl.zeros([64, w.BN], gl.float32, w.layout), room, slot, False)

    @jit
    def step(w: gl.constexpr, g, at, part: gl.constexpr, k, acc, room, slot, is_head: gl.constexpr):
        return w.product(w, part, acc, room, slot, True)

    @jit
    def last(w: gl.constexpr, g, at, part: gl.constexpr, acc, room, slot):
        return warpgroup_mma_wait(0, (acc,))

    @jit
    def finish(w: gl.constexpr, g, at, part: gl.constexpr, acc, room):
        if w.has_bias:
            n = at[1] + gl.arange(0, w.BN, gl.SliceLayout(0, w.layout))
            acc += gl.expand_dims(gl.load(g[3] + n, n < g[7], other=0.0).to(gl.float32), 0)
        if w.relu:
            acc = gl.where(acc < 0.0, 0.0, acc)
        image, i, j = w.box(w, g, at[0] + part)
        rows: gl.constexpr = 16 if w.pooled else 64
        if w.pooled:
            squares = gl.reshape(acc, [w.images, w.rows // 2, 2, w.columns // 2, 2, w.BN])
            acc = gl.reshape(gl.reduce(gl.reduce(squares, 2, _greater), 3, _greater), [rows, w.BN])
            i, j = i // 2, j // 2
        tma.store_wait(0)
        place = room[2].index(part)
        place.reshape([rows, w.BN]).store(acc.to(g[2].dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(g[2], [image, i, j, at[1]], place)


@jit
def _greater(a, b):
    """NaN if one of them is."""
    return gl.where((a > b) | (a != a), a, b)


@jit
def convolution_kernel(
    x, weight, y, bias, images, high, wide, outputs, pad_h, pad_w, dilation_h, dilation_w, w: gl.constexpr
):
    pipeline(w, (x, weight, y, bias, images, high, wide, outputs, pad_h, pad_w, dilation_h, dilation_w))
