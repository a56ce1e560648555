"""Convolutions on Hopper: which kernel, of which tiles, and its launch. See conv2d.py."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import torch

from assay.tiles.kernels.conv2d_boxes import Convolution, convolution_kernel
from assay.tiles.kernels.conv2d_held import Held, held_kernel
from assay.tiles.launch import (
    again,
    aligned,
    call_of,
    describe,
    launch,
    multiprocessors,
    runs_on_hopper,
    tile_that_ends_first,
)

LEAST_CHANNELS = 32
"""With fewer, most of a step's 64 would be zeros."""
BLOCK = 64
"""Channels of a step, and positions of a box."""
ROW_BYTES = 2 * BLOCK
TILES = (
    (192, 128, 0.58, 1.5),
    (128, 256, 0.74, 1.2),
    (128, 128, 0.39, 0.8),
    (192, 64, 0.37, 1.6),
    (128, 64, 0.27, 1.2),
)
ROOM_BYTES = 231_424
"""Of shared memory; what is left has the barriers."""
MOST_STAGES = 8
LEAST_STAGES = 3
HELD_TAPS = (2, 3, 5)
"""In a column."""
HELD_OUTPUTS = 64
HELD_BOX = (1, 8, 8)
MOST_WASTE = 1.25
"""How many more of those boxes there may be than of the best ones."""


def fits(x: torch.Tensor, weight: torch.Tensor, geometry: list[int]) -> bool:
    """Whether it runs here: a position's channels are copied as they lie, from a multiple of 16 bytes on."""
    are_even = x.shape[1] % 8 == 0 and weight.shape[0] % 8 == 0 and x.shape[1] >= LEAST_CHANNELS
    return are_even and x.element_size() == 2 and geometry[:2] == [1, 1] and runs_on_hopper(x, weight)


def convolved_on_hopper(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    y: torch.Tensor,
    geometry: list[int],
    *,
    relu: bool = False,
    pooled: bool = False,
) -> torch.Tensor:
    """Args:
    y: where the answer is to be; it is elsewhere if y's channels do not lie side by side.
    geometry: the stride, the padding and the dilation, each down and across.
    """
    last = torch.channels_last
    made = y if y.is_contiguous(memory_format=last) else torch.empty_like(y, memory_format=last)
    call = call_of(convolution_kernel, x, weight, bias, *geometry, relu, pooled, made.data_ptr())
    if again(call, x):
        return made
    rows, taps = side_by_side(x), side_by_side(weight)
    given_bias = bias if bias is None else bias.contiguous()
    pairs = (x, rows), (weight, taps), (bias, given_bias)
    is_as_given = all(one is other or one.data_ptr() == other.data_ptr() for one, other in pairs)
    high, wide = (2 * side if pooled else side for side in y.shape[2:])
    ends = {"has_bias": bias is not None, "relu": relu, "pooled": pooled}
    work = choose(y.shape[0], high, wide, *taps.shape, geometry[4] == 1, multiprocessors(x), **ends)
    convolve(
        work,
        rows,
        taps,
        given_bias,
        side_by_side(made),
        (high, wide),
        geometry,
        call if is_as_given else None,
    )
    return made


def side_by_side(x: torch.Tensor) -> torch.Tensor:
    """As (N, H, W, C), dense: strides of axes of one are what they would be of longer ones."""
    rows = aligned(x.permute(0, 2, 3, 1).contiguous())
    return rows.view(-1).view(rows.shape)


def convolve(
    work: Convolution,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    y: torch.Tensor,
    sides: tuple[int, int],
    geometry: list[int],
    call: tuple[Any, ...] | None = None,
) -> None:
    """One launch. Tensors are dense, their channels last.

    Args:
        sides: of the convolution.
    """
    outputs, taps_h, taps_w, channels = weight.shape
    box, half = (work.images, work.rows, work.columns), 2 if work.pooled else 1
    arguments: list[Any] = [
        describe(x, (*box, BLOCK)),
        describe(weight.view(outputs, taps_h * taps_w, channels), (work.BN, 1, BLOCK)),
        describe(y, (work.images, work.rows // half, work.columns // half, work.BN)),
        y if bias is None else bias, x.shape[0], *sides, outputs, *geometry[2:],
    ]  # fmt: skip
    tiles = -(-boxes(box, x.shape[0], *sides) // work.consumers) * -(-outputs // work.BN)
    kernel = convolution_kernel
    if isinstance(work, Held):
        kernel = held_kernel
        arguments.append(describe(x, (1, work.R - 1, work.columns, BLOCK)))
    launch(kernel, min(tiles, multiprocessors(x)), arguments, work, x, call)


@functools.lru_cache(maxsize=4096)
def choose(
    n: int, high: int, wide: int, outputs: int, taps_h: int, taps_w: int, channels: int,
    is_dense: bool, processors: int, *, has_bias: bool, relu: bool, pooled: bool,
) -> Convolution:  # fmt: skip
    """Args:
    high, wide: of the convolution.
    is_dense: taps of a column are not apart.
    """
    taps, blocks = taps_h * taps_w, -(-channels // BLOCK)
    box = best_box(n, high, wide, taps_h, taps_w, pooled)
    number = boxes(box, n, high, wide)
    sizes: dict[str, Any] = {"S": taps_w, "taps": taps, "blocks": blocks}
    sizes |= {"has_bias": has_bias, "relu": relu, "pooled": pooled}
    if is_dense and taps_h in HELD_TAPS and outputs <= HELD_OUTPUTS:
        number_held = boxes(HELD_BOX, n, high, wide)
        found = [work for consumers in (3, 2) if (work := held(consumers, taps_h, sizes)) is not None]
        if found and number_held <= MOST_WASTE * number:
            return min(
                found, key=lambda work: work.consumers * -(-number_held // work.consumers // processors)
            )
    rows, width = tile_that_ends_first(TILES, number * BLOCK, outputs, taps * blocks, processors)
    consumers = rows // BLOCK
    stages = stages_of((rows + width) * ROW_BYTES, bytes_of_y(consumers, width, pooled))
    images, down, across = box
    return Convolution(
        stages=stages, consumers=consumers, BN=width, images=images, rows=down, columns=across, **sizes
    )


def held(consumers: int, taps_h: int, sizes: dict[str, Any]) -> Held | None:
    """None where there is too little room besides the weight."""
    weight_bytes = sizes["taps"] * sizes["blocks"] * HELD_OUTPUTS * ROW_BYTES
    taken = weight_bytes + bytes_of_y(consumers, HELD_OUTPUTS, sizes["pooled"])
    stages = stages_of(consumers * (7 + taps_h) * 8 * ROW_BYTES, taken)
    if stages < LEAST_STAGES:
        return None
    return Held(stages=stages, consumers=consumers, BN=HELD_OUTPUTS, R=taps_h, **sizes)


def bytes_of_y(consumers: int, width: int, pooled: bool) -> int:
    return consumers * BLOCK * width * 2 // (4 if pooled else 1)


def stages_of(size_bytes: int, taken: int) -> int:
    return min((ROOM_BYTES - taken) // size_bytes, MOST_STAGES)


Box = tuple[int, int, int]
"""Images, rows and columns."""


def boxes(box: Box, n: int, high: int, wide: int) -> int:
    return math.prod(-(-whole // side) for whole, side in zip((n, high, wide), box, strict=True))


def best_box(n: int, high: int, wide: int, taps_h: int, taps_w: int, pooled: bool) -> Box:
    """Fewest boxes first, then fewest elements of x under each; up to 8 columns a square is a warp's own."""
    pairs = itertools.product(range(1, 7) if pooled else range(7), range(1, 4) if pooled else range(7))
    found = [(BLOCK >> (r + c), 1 << r, 1 << c) for r, c in pairs if r + c <= 6]

    def price(box: Box) -> tuple[int, int, int]:
        images, rows, columns = box
        return boxes(box, n, high, wide), images * (rows + taps_h - 1) * (columns + taps_w - 1), images

    return min(found, key=price)
