"""Convolution of images, y[n, k, p, q] = bias[k] + sum over c, r, s of weight[k, c, r, s] * x[n, c, h, w],

    h = p * stride - padding + r * dilation,    w = q * stride - padding + s * dilation,    x = 0 outside

and, if asked, relu of it. It is a matrix product whose left side is never written down: rows are output
positions, columns output channels, and the depth walks over (r, s, block of channels). Sums are in float32;
y lies in memory as x does, contiguous or channels_last. Where the channels are a multiple of 16, x is read as
channels_last (a contiguous one is copied first: else every read would be of two bytes); elsewhere depth runs
over (r, s, c) as one axis. The weight is read as (K, R, S, C), which needs no copy where it is channels_last
too. float32 is taken and right, not fast. On Hopper conv2d_hopper.py answers where it can.

Forward only: backward through it raises. Not covered: groups, transposed convolutions.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from assay.tiles.choice import bits, is_torchs
from assay.tiles.kernel import MOST_ELEMENTS, Cost, Kernel, Unsupported, launches, need_dtype, need_few
from assay.tiles.kernels.conv2d_hopper import convolved_on_hopper, fits
from assay.tiles.launch import start
from assay.tiles.op import op

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
WIDE_CHANNELS = 16
"""Channels that one wide read takes, and that a product is deep."""
PROGRAMS_WANTED = 132
"""One for each multiprocessor of an H200."""


@triton.jit
def convolved(
    x_ptr, weight_ptr, image, top, left, inside, k, channels, height, width, outputs, taps,
    x_n, x_c, x_h, x_w, dilation_h, dilation_w,
    S: tl.constexpr, FLAT: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr, BC: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """The sums of BM windows, which begin at (image, top, left), for the BK output channels k."""
    total = tl.zeros([BM, BK], tl.float32)
    length = channels * taps
    start = image * x_n + top * x_h + left * x_w
    for step in tl.range(0, tl.cdiv(length, BC), num_stages=STAGES):
        depth = step * BC + tl.arange(0, BC)
        # A block lies within one tap unless depth is flat: then the tap is one number, and reads are wide.
        tap = (depth // channels)[None, :] if FLAT else step * BC // channels
        r, s = tap // S, tap % S
        h, w = top[:, None] + r * dilation_h, left[:, None] + s * dilation_w
        seen = inside[:, None] & (h >= 0) & (h < height) & (w >= 0) & (w < width)
        written = (k < outputs)[None, :]
        if FLAT:
            seen &= (depth < length)[None, :]
            written &= (depth < length)[:, None]
        shift = r * dilation_h * x_h + s * dilation_w * x_w + (depth[None, :] - tap * channels) * x_c
        x = tl.load(x_ptr + (start[:, None] + shift), mask=seen, other=0.0)
        weight = tl.load(weight_ptr + k[None, :] * length + depth[:, None], mask=written, other=0.0)
        total = tl.dot(x, weight, total, input_precision="tf32x3")
    return total


@triton.jit
def forward_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, positions, plane, columns, channels, height, width, outputs, taps,
    x_n, x_c, x_h, x_w, y_n, y_k, y_pixel, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w,
    S: tl.constexpr, FLAT: tl.constexpr, RELU: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    BC: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(outputs, BK)
    m = tl.program_id(0) // tiles * BM + tl.arange(0, BM)
    k = tl.program_id(0) % tiles * BK + tl.arange(0, BK)
    image, pixel = m // plane, m % plane
    top, left = pixel // columns * stride_h - pad_h, pixel % columns * stride_w - pad_w
    total = convolved(
        x_ptr, weight_ptr, image, top, left, m < positions, k, channels, height, width, outputs, taps,
        x_n, x_c, x_h, x_w, dilation_h, dilation_w, S, FLAT, BM, BK, BC, STAGES,
    )  # fmt: skip
    if bias_ptr is not None:
        total += tl.load(bias_ptr + k, mask=k < outputs, other=0.0).to(tl.float32)[None, :]
    if RELU:
        total = tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL)
    place = (image * y_n + pixel * y_pixel)[:, None] + k[None, :] * y_k
    tl.store(y_ptr + place, total, mask=(m < positions)[:, None] & (k < outputs)[None, :])


def reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    relu: bool = False,
) -> torch.Tensor:
    wide = None if bias is None else bias.float()
    y = torch.nn.functional.conv2d(x.float(), weight.float(), wide, stride, padding, dilation)
    return (torch.relu(y) if relu else y).to(x.dtype).contiguous(memory_format=memory_format(x))


def memory_format(x: torch.Tensor) -> torch.memory_format:
    """What y is laid out as; contiguous where x is both, or neither."""
    is_last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return torch.channels_last if is_last else torch.contiguous_format


def tile(positions: int, outputs: int, channels: int, itemsize: int) -> dict[str, Any]:
    """Constants of the kernels: tiles as high as leaves enough of them to keep the GPU busy.

    They are no wider than 128: at 256 the assembler puts tensor core operations one after the other.
    """
    flat = channels % WIDE_CHANNELS != 0
    is_plain = not flat and itemsize == 2
    wide = min(max(triton.next_power_of_2(outputs), 16), 128 if is_plain else 64)
    deep = 32 if flat else next(block for block in (64, 32, 16) if channels % block == 0)
    heights = (256, 128, 64) if is_plain else (64,)
    high = next((h for h in heights if tiles(positions, h, outputs, wide) >= PROGRAMS_WANTED), 64)
    return {
        "FLAT": flat,
        "BM": high,
        "BK": wide,
        "BC": deep if is_plain else min(deep, 32),
        "STAGES": 3,
        "num_warps": 8 if flat or high * wide > 128 * 64 else 4,
    }


def tiles(positions: int, high: int, outputs: int, wide: int) -> int:
    return triton.cdiv(positions, high) * triton.cdiv(outputs, wide)


def readable(x: torch.Tensor) -> torch.Tensor:
    """The same, dense, and with channels side by side where wide reads can take them."""
    is_wide = x.shape[1] % WIDE_CHANNELS == 0
    return x.contiguous(memory_format=torch.channels_last if is_wide else memory_format(x))


@op("conv2d")
def _op(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, geometry: list[int], relu: bool
) -> torch.Tensor:
    """Geometry: the stride, the padding and the dilation, each down and across."""
    y = _op_shape(x, weight, bias, geometry, relu)
    if is_faster_by_torch("conv2d", x, weight, geometry, y.shape[2] * y.shape[3], " relu" if relu else ""):
        y = by_torch(x, weight, bias, geometry)
        return (y.relu_() if relu else y).contiguous(memory_format=memory_format(x))
    if fits(x, weight, geometry):
        made = convolved_on_hopper(x, weight, bias, y, geometry, relu=relu)
        return made.contiguous(memory_format=memory_format(x))
    (n, channels, height, width), (outputs, _, taps_h, taps_w) = x.shape, weight.shape
    plane = y.shape[2] * y.shape[3]
    x, weight = readable(x), weight.permute(0, 2, 3, 1).contiguous()
    sizes = tile(n * plane, outputs, channels, x.element_size())
    programs = tiles(n * plane, sizes["BM"], outputs, sizes["BK"])
    last = memory_format(y) is torch.channels_last
    arguments = (
        x, weight, None if bias is None else bias.contiguous(), y,
        n * plane, plane, y.shape[3], channels, height, width, outputs, taps_h * taps_w, *x.stride(),
        outputs * plane, 1 if last else plane, outputs if last else 1, *geometry,
    )  # fmt: skip
    start(forward_kernel, (programs,), arguments, x, S=taps_w, RELU=relu, **sizes)
    return y


def is_faster_by_torch(
    kernel: str, x: torch.Tensor, weight: torch.Tensor, geometry: list[int], plane: int, ends: str = ""
) -> bool:
    """Tells apart how images and weights lie. Never in float32, where torch may be less precise.

    Args:
        plane: positions of an image that is made.
        ends: what comes after the convolution.
    """
    if x.element_size() != 2 or max(geometry[4:]) > 1:
        return False
    lie = ["last" if memory_format(each) is torch.channels_last else "first" for each in (x, weight)]
    kind = f"{bits(x)} channels {lie[0]}, weight's {lie[1]}{ends}"
    sizes = {"positions": x.shape[0] * plane, "channels": x.shape[1], "outputs": weight.shape[0]}
    taps, stride = weight.shape[2] * weight.shape[3], geometry[0]
    return is_torchs(kernel, kind, x.device, **sizes, taps=taps, stride=stride)


def by_torch(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, geometry: list[int]
) -> torch.Tensor:
    stride, padding, dilation = geometry[:2], geometry[2:4], geometry[4:]
    return torch.nn.functional.conv2d(x, weight, bias, stride, padding, dilation)


@_op.register_fake
def _op_shape(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, geometry: list[int], relu: bool
) -> torch.Tensor:
    shape = (x.shape[0], weight.shape[0], *convolved_plane(x, weight, geometry))
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=memory_format(x))


def convolved_plane(x: torch.Tensor, weight: torch.Tensor, geometry: list[int]) -> tuple[int, int]:
    """Height and width of the convolution; less than 1 where the window does not fit."""
    high, wide = (
        (x.shape[2 + axis] + 2 * geometry[2 + axis] - geometry[4 + axis] * (weight.shape[2 + axis] - 1) - 1)
        // geometry[axis]
        + 1
        for axis in (0, 1)
    )
    return high, wide


def need_images(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *steps: int | tuple[int, int]
) -> list[int]:
    """Checks what convolutions take; stride, padding and dilation as one list, each down and across."""
    tensors = [x, weight, *(() if bias is None else (bias,))]
    need_dtype(*tensors, of=DTYPES)
    if x.ndim != 4 or weight.ndim != 4 or x.shape[1] != weight.shape[1] or 0 in weight.shape[1:]:
        raise Unsupported(
            f"x is {tuple(x.shape)}, the weight {tuple(weight.shape)}: use (N, C, H, W) and (K, C, R, S)"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise Unsupported(f"a bias of {tuple(bias.shape)} for {weight.shape[0]} output channels")
    pairs = [step if isinstance(step, tuple | list) else (step, step) for step in steps]
    are_whole = all(isinstance(value, int | torch.SymInt) for pair in pairs for value in pair)
    if (
        not are_whole
        or any(len(pair) != 2 for pair in pairs)
        or min(*pairs[0], *pairs[2]) < 1
        or min(pairs[1]) < 0
    ):
        raise Unsupported(
            f"stride, padding, dilation are {steps}: use one or two of each, from 1, 0 and 1 on"
        )
    geometry = [value for pair in pairs for value in pair]
    padded = [side + 2 * padding for side, padding in zip(x.shape[2:], pairs[1], strict=True)]
    if max(*padded, *pairs[0], *pairs[2]) > MOST_ELEMENTS:
        raise Unsupported(f"stride, padding, dilation are {steps}: places have to be below 2^31")
    high, wide = convolved_plane(x, weight, geometry)
    if high < 1 or wide < 1:
        raise Unsupported(f"a window of {tuple(weight.shape[2:])} does not fit into x of {tuple(x.shape)}")
    if x.shape[0] * weight.shape[0] * high * wide > MOST_ELEMENTS:
        raise Unsupported("the convolution has more than 2^31 - 1 elements: split the batch")
    need_few(*tensors)
    return geometry


def conv2d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    relu: bool = False,
) -> torch.Tensor:
    """x (N, C, H, W), weight (K, C, R, S), bias (K): y (N, K, P, Q), laid out as x is. Forward only."""
    geometry = need_images(x, weight, bias, stride, padding, dilation)
    launched = launches(x, weight, *(() if bias is None else (bias,)))
    if x.shape[0] == 0 or weight.shape[0] == 0:
        return _op_shape(x, weight, bias, geometry, relu)
    if not launched:
        return reference(x, weight, bias, stride, padding, dilation, relu)
    return _op(x, weight, bias, geometry, relu)


def inputs(
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
    device: str = "cuda",
) -> tuple[Any, ...]:
    """Square images and windows; `last` says that x and the weight are channels_last."""
    form = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(n, channels, side, side, device=device)
    weight = torch.randn(outputs, channels, window, window, device=device) * (channels * window**2) ** -0.5
    x, weight = (tensor.to(dtype).contiguous(memory_format=form) for tensor in (x, weight))
    return x, weight, torch.randn(outputs, device=device).to(dtype), stride, padding, dilation


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
    """x, the weight and the bias in, y out; a multiplication and an addition for each tap."""
    taps = channels * window**2
    made = n * outputs * ((side + 2 * padding - dilation * (window - 1) - 1) // stride + 1) ** 2
    elements = n * channels * side**2 + outputs * (taps + 1) + made
    return Cost(size_bytes=elements * dtype.itemsize, flops=2 * made * taps)


ENTRY = Kernel(
    name="conv2d",
    formula="y[p, q] = bias + sum of weight[r, s] * x[p * stride - padding + r * dilation, ...]",
    run=conv2d,
    reference=reference,
    inputs=inputs,
    cases=(
        {"n": 1, "channels": 1, "side": 1, "outputs": 1, "window": 1, "padding": 0},
        {"n": 1, "channels": 16, "side": 9, "outputs": 24},
        {"n": 1, "channels": 96, "side": 7, "outputs": 130, "window": 1, "padding": 0, "last": False},
        {"n": 2, "channels": 3, "side": 13, "outputs": 20, "window": 5, "stride": 2, "padding": 2},
        {"n": 1, "channels": 32, "side": 11, "outputs": 16, "padding": 3, "dilation": 3, "last": False},
        {"n": 2, "channels": 64, "side": 16, "outputs": 40},
        {"n": 3, "channels": 72, "side": 9, "outputs": 136, "window": 4, "padding": 2},
    ),
    sizes=(
        {"n": 64, "channels": 64, "side": 56, "outputs": 64},
        {"n": 64, "channels": 128, "side": 28, "outputs": 128},
        {"n": 64, "channels": 256, "side": 14, "outputs": 256},
        {"n": 64, "channels": 256, "side": 56, "outputs": 64, "window": 1, "padding": 0},
        {"n": 64, "channels": 3, "side": 224, "outputs": 64, "window": 7, "stride": 2, "padding": 3},
        {"n": 64, "channels": 128, "side": 28, "outputs": 128, "last": False},
    ),
    cost=cost,
)
