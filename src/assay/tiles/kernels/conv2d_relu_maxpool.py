"""Convolution, relu and the maximum of each 2 x 2 square, in one pass:

    y[n, k, i, j] = max(0, max over a, b in {0, 1} of bias[k] + conv(x, weight)[n, k, 2 i + a, 2 j + b])

with conv as in conv2d.py, and squares two apart; a last odd row or column of the convolution is left out, as
torch does. A program computes a tile of pooled outputs: it goes over the four places of a square and keeps
the larger sums in registers, so that the convolution, four times as large as y, never goes to memory. Relu
comes after the maximum, which is the same and four times less work. On Hopper conv2d_hopper.py answers where
it can.

Forward only: backward through it raises. Not covered: groups, other squares, padding of the pool.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from assay.tiles.kernel import Cost, Kernel, Unsupported, launches
from assay.tiles.kernels import conv2d
from assay.tiles.kernels.conv2d import (
    by_torch,
    convolved,
    convolved_plane,
    inputs,
    is_faster_by_torch,
    memory_format,
    need_images,
    readable,
    tiles,
)
from assay.tiles.kernels.conv2d_hopper import convolved_on_hopper, fits
from assay.tiles.launch import start
from assay.tiles.op import op


@triton.jit
def forward_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, positions, plane, columns, channels, height, width, outputs, taps,
    x_n, x_c, x_h, x_w, y_n, y_k, y_pixel, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w,
    S: tl.constexpr, FLAT: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr, BC: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    across = tl.cdiv(outputs, BK)
    m = tl.program_id(0) // across * BM + tl.arange(0, BM)
    k = tl.program_id(0) % across * BK + tl.arange(0, BK)
    image, pixel = m // plane, m % plane
    i, j = pixel // columns, pixel % columns
    bias = tl.zeros([BK], tl.float32)
    if bias_ptr is not None:
        bias += tl.load(bias_ptr + k, mask=k < outputs, other=0.0).to(tl.float32)
    most = tl.full([BM, BK], float("-inf"), tl.float32)
    for corner in tl.range(0, 4):
        top = (2 * i + corner // 2) * stride_h - pad_h
        left = (2 * j + corner % 2) * stride_w - pad_w
        total = convolved(
            x_ptr, weight_ptr, image, top, left, m < positions, k, channels, height, width, outputs, taps,
            x_n, x_c, x_h, x_w, dilation_h, dilation_w, S, FLAT, BM, BK, BC, STAGES,
        )  # fmt: skip
        most = tl.maximum(most, total + bias[None, :], propagate_nan=tl.PropagateNan.ALL)
    most = tl.maximum(most, 0.0, propagate_nan=tl.PropagateNan.ALL)
    place = (image * y_n + pixel * y_pixel)[:, None] + k[None, :] * y_k
    tl.store(y_ptr + place, most, mask=(m < positions)[:, None] & (k < outputs)[None, :])


def reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
) -> torch.Tensor:
    wide = None if bias is None else bias.float()
    y = torch.nn.functional.conv2d(x.float(), weight.float(), wide, stride, padding, dilation)
    y = torch.nn.functional.max_pool2d(torch.relu(y), 2)
    return y.to(x.dtype).contiguous(memory_format=memory_format(x))


@op("conv2d_relu_maxpool")
def _op(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, geometry: list[int]
) -> torch.Tensor:
    """Geometry: the stride, the padding and the dilation, each down and across."""
    y = _op_shape(x, weight, bias, geometry)
    if is_faster_by_torch("conv2d_relu_maxpool", x, weight, geometry, y.shape[2] * y.shape[3]):
        y = torch.nn.functional.max_pool2d(by_torch(x, weight, bias, geometry), 2).relu_()
        return y.contiguous(memory_format=memory_format(x))
    if fits(x, weight, geometry):
        made = convolved_on_hopper(x, weight, bias, y, geometry, relu=True, pooled=True)
        return made.contiguous(memory_format=memory_format(x))
    (n, channels, height, width), (outputs, _, taps_h, taps_w) = x.shape, weight.shape
    plane = y.shape[2] * y.shape[3]
    x, weight = readable(x), weight.permute(0, 2, 3, 1).contiguous()
    sizes = tile(n * plane, outputs, channels, x.element_size())
    last = memory_format(y) is torch.channels_last
    arguments = (
        x, weight, None if bias is None else bias.contiguous(), y,
        n * plane, plane, y.shape[3], channels, height, width, outputs, taps_h * taps_w, *x.stride(),
        outputs * plane, 1 if last else plane, outputs if last else 1, *geometry,
    )  # fmt: skip
    programs = tiles(n * plane, sizes["BM"], outputs, sizes["BK"])
    start(forward_kernel, (programs,), arguments, x, S=taps_w, **sizes)
    return y


@_op.register_fake
def _op_shape(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, geometry: list[int]
) -> torch.Tensor:
    high, wide = convolved_plane(x, weight, geometry)
    shape = (x.shape[0], weight.shape[0], high // 2, wide // 2)
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=memory_format(x))


def tile(positions: int, outputs: int, channels: int, itemsize: int) -> dict[str, Any]:
    """As for the convolution alone, half as high at most: the maximum takes as many registers as the sums."""
    sizes = conv2d.tile(positions, outputs, channels, itemsize)
    return sizes | {"BM": min(sizes["BM"], 128)}


def conv2d_relu_maxpool(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
) -> torch.Tensor:
    """x (N, C, H, W), weight (K, C, R, S), bias (K): y (N, K, P // 2, Q // 2), laid out as x is."""
    geometry = need_images(x, weight, bias, stride, padding, dilation)
    if min(convolved_plane(x, weight, geometry)) < 2:
        raise Unsupported(f"x of {tuple(x.shape)} leaves no square of 2 x 2 to take the maximum of")
    launched = launches(x, weight, *(() if bias is None else (bias,)))
    if x.shape[0] == 0 or weight.shape[0] == 0:
        return _op_shape(x, weight, bias, geometry)
    if not launched:
        return reference(x, weight, bias, stride, padding, dilation)
    return _op(x, weight, bias, geometry)


def cost(
    *,
    n: int,
    channels: int,
    side: int,
    outputs: int,
    window: int = 3,
    stride: int = 1,
    padding: int = 1,
    dilation: int = 1,
    last: bool = True,
    dtype: torch.dtype = torch.bfloat16,
) -> Cost:
    """x, the weight and the bias in, y out; each tap of the four convolutions under an output."""
    taps = channels * window**2
    made = n * outputs * (((side + 2 * padding - dilation * (window - 1) - 1) // stride + 1) // 2) ** 2
    elements = n * channels * side**2 + outputs * (taps + 1) + made
    return Cost(size_bytes=elements * dtype.itemsize, flops=8 * made * taps)


ENTRY = Kernel(
    name="conv2d_relu_maxpool",
    formula="y = max(0, max over 2 x 2 squares of bias + conv(x, weight))",
    run=conv2d_relu_maxpool,
    reference=reference,
    inputs=inputs,
    cases=(
        {"n": 1, "channels": 1, "side": 2, "outputs": 1, "window": 1, "padding": 0},
        {"n": 2, "channels": 16, "side": 7, "outputs": 24},
        {"n": 1, "channels": 96, "side": 6, "outputs": 130, "window": 1, "padding": 0, "last": False},
        {"n": 2, "channels": 3, "side": 13, "outputs": 20, "window": 5, "stride": 2, "padding": 2},
        {"n": 1, "channels": 32, "side": 11, "outputs": 16, "padding": 3, "dilation": 3, "last": False},
        {"n": 2, "channels": 64, "side": 16, "outputs": 40},
        {"n": 3, "channels": 72, "side": 9, "outputs": 136, "window": 4, "padding": 2},
    ),
    sizes=(
        {"n": 64, "channels": 64, "side": 112, "outputs": 64},
        {"n": 64, "channels": 64, "side": 112, "outputs": 128},
        {"n": 64, "channels": 128, "side": 56, "outputs": 256},
        {"n": 64, "channels": 256, "side": 28, "outputs": 512},
        {"n": 64, "channels": 3, "side": 224, "outputs": 64},
        {"n": 64, "channels": 128, "side": 56, "outputs": 256, "last": False},
    ),
    cost=cost,
)
