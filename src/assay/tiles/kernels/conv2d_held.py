"""Convolution for Hopper to few outputs, whose weight stays in shared memory: see conv2d_boxes.py.

Of x a box comes once for each column of taps, not for each tap: it is as much higher as there are more taps
in a column, and each of them has its product with a part of it that begins a row further down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from assay.tiles.hopper import gl, jit, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from assay.tiles.kernels.conv2d_boxes import Convolution
from assay.tiles.pipeline import pipeline


@dataclass(frozen=True)
class Held(Convolution):
    """A step is 64 channels of a column of taps, which are not apart. Boxes are 8 x 8 and of one image, and a
    tile has all outputs."""

    BN: int = 64
    R: int = 3
    """Taps of a column: one more than a power of two, as copies have them."""
    entries: ClassVar[int] = 2

    @jit
    def room(w: gl.constexpr, g):
        layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([8, 64], g[0].dtype)
        x = gl.allocate_shared_memory(g[0].dtype, [w.consumers * w.stages * (7 + w.R), 8, 64], layout)
        weight = gl.allocate_shared_memory(
            g[1].dtype, [w.taps * w.blocks] + g[1].block_type.shape, g[1].layout
        )
        return (
            x,
            weight,
            gl.allocate_shared_memory(g[2].dtype, [w.consumers] + g[2].block_type.shape, g[2].layout),
        )

    @jit
    def place(w: gl.constexpr, g, t, n):
        return t * w.consumers, 0, n

    @jit
    def steps(w: gl.constexpr, g, at):
        return w.S * w.blocks

    @jit
    def enter(w: gl.constexpr, g, at, room, bar):
        if at[2] == 0:
            mbarrier.expect(bar, w.taps * w.blocks * g[1].block_type.nbytes)
            for k in range(w.taps * w.blocks):
                tap = k % w.R * w.S + k // w.R // w.blocks
                corner = [at[1], tap, k // w.R % w.blocks * 64]
                tma.async_copy_global_to_shared(g[1], corner, bar, room[1].index(k))
        else:
            mbarrier.arrive(bar, count=1)

    @jit
    def load(w: gl.constexpr, g, at, k, room, slot, bar):
        across, channel = k // w.blocks * g[11] - g[9], k % w.blocks * 64
        mbarrier.expect(bar, w.consumers * (g[0].block_type.nbytes + g[12].block_type.nbytes))
        for part in gl.static_range(w.consumers):
            image, i, j = w.box(w, g, at[0] + part)
            row = (w.consumers * slot + part) * (7 + w.R)
            upper = room[0].index(row)._reinterpret(g[0].dtype, g[0].block_type.shape, g[0].layout)
            tma.async_copy_global_to_shared(g[0], [image, i - g[8], j + across, channel], bar, upper)
            lower = room[0].index(row + 8)._reinterpret(g[0].dtype, g[12].block_type.shape, g[12].layout)
            tma.async_copy_global_to_shared(g[12], [image, i + 8 - g[8], j + across, channel], bar, lower)

    @jit
    def product(w: gl.constexpr, g, part: gl.constexpr, k, acc, room, slot, use_acc: gl.constexpr):
        for r in gl.static_range(w.R):
            row = (w.consumers * slot + part) * (7 + w.R) + r
            x = room[0].index(row)._reinterpret(g[0].dtype, [64, 64], room[0].layout)
            weight = room[1].index(k * w.R + r).reshape([w.BN, 64]).permute((1, 0))
            acc = warpgroup_mma(x, weight, acc, use_acc=use_acc or r > 0, is_async=True)
        return warpgroup_mma_wait(w.R, (acc,))  # which leaves these in flight

    @jit
    def first(w: gl.constexpr, g, at, part: gl.constexpr, room, slot):
        return w.product(w, g, part, 0, gl.zeros([64, w.BN], gl.float32, w.layout), room, slot, False)

    @jit
    def step(w: gl.constexpr, g, at, part: gl.constexpr, k, acc, room, slot, is_head: gl.constexpr):
        return w.product(w, g, part, k, acc, room, slot, True)


@jit
def held_kernel(
    x,
    weight,
    y,
    bias,
    images,
    high,
    wide,
    outputs,
    pad_h,
    pad_w,
    dilation_h,
    dilation_w,
    more,
    w: gl.constexpr,
):
    pipeline(w, (x, weight, y, bias, images, high, wide, outputs, pad_h, pad_w, dilation_h, dilation_w, more))
