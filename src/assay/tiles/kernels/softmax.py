"""Softmax over the last axis: y = exp(x - max(x)) / sum(exp(x - max(x))).

Backward, from y alone: dx = y * (dy - sum(y * dy)).

Rows of up to 16384 elements lie in registers, several short ones in one program. Longer ones are read twice:
first for the maximum and the sum at once, in lanes with a maximum and sum of their own so that no thread
waits for another, then for the result. A row that is -inf all over, or has a NaN or +inf, comes out as NaN,
as in torch. Not covered: another axis than the last (transpose first), a mask or scale, second derivatives.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from assay.tiles.choice import bits, is_torchs
from assay.tiles.kernel import MOST_ELEMENTS, Cost, Kernel, Unsupported, launches, need_dtype
from assay.tiles.launch import again, call_of, start
from assay.tiles.op import op
from assay.tiles.rounding import rounded
from assay.tiles.rows import DTYPES, as_rows, dense_rows, in_units, shaped, tile

FORWARD_COLUMNS = 16_384
BACKWARD_COLUMNS = 16_384
"""Longer rows would spill registers."""
LONG_WARPS = 32
"""One program fills a processor: the rows under way then stay in the L2 cache for the second read."""
SHARED_COLUMNS = 65_536
"""Up to here two programs share one, and the cache holds as many rows."""
LONG_DEPTH = 4
LONG_LANES = 8192
"""Of a long row, so many columns at a time: four vectors of 16 bytes per thread."""
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def forward_kernel(
    x_ptr, y_ptr, rows, columns, x_stride, UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    columns, x_stride = columns * UNIT, x_stride * UNIT
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    inside = (row < rows) & (column < columns)
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=-float("inf"))
    top = tl.max(x, 1, keep_dims=True).to(tl.float32)
    total = tl.sum(tl.exp2((x.to(tl.float32) - top) * LOG2_E), 1, keep_dims=True)
    # Not the powers above divided by the sum: those would have to be kept, in twice the registers.
    y = tl.exp2((x.to(tl.float32) - top) * LOG2_E - tl.log2(total))
    tl.store(y_ptr + row * columns + column, y, mask=inside)


@triton.jit
def fold(x, top, total, AXIS: tl.constexpr):
    """Takes one axis of x into the running maxima and sums of exp(x - maximum)."""
    higher = tl.maximum(top, tl.max(x, AXIS))
    # Where all is -inf so far the sum is 0, and -inf - -inf must not spoil it.
    base = tl.where(higher == -float("inf"), 0.0, higher)
    # Scaled after the difference: the lowest finite value, as masks write it, would turn to -inf.
    powers = tl.exp2((x - tl.expand_dims(base, AXIS)) * LOG2_E)
    return higher, total * tl.exp2((top - base) * LOG2_E) + tl.sum(powers, AXIS)


@triton.jit
def long_forward_kernel(x_ptr, y_ptr, columns, x_stride, DEPTH: tl.constexpr, LANES: tl.constexpr):
    x_ptr += tl.program_id(0).to(tl.int64) * x_stride
    y_ptr += tl.program_id(0).to(tl.int64) * columns
    place = tl.arange(0, DEPTH)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    tops = tl.full([LANES], -float("inf"), tl.float32)
    totals = tl.zeros([LANES], tl.float32)
    for begin in range(0, columns, DEPTH * LANES):
        column = begin + place
        x = tl.load(x_ptr + column, mask=column < columns, other=-float("inf"), eviction_policy="evict_last")
        tops, totals = fold(x.to(tl.float32), tops, totals, 0)
    top = tl.max(tops, 0)
    log_total = tl.log2(tl.sum(rounded(totals, tl.exp2((tops - top) * LOG2_E)), 0))
    for begin in range(0, columns, DEPTH * LANES):
        column = begin + place
        x = tl.load(x_ptr + column, mask=column < columns, other=0.0, eviction_policy="evict_first")
        y = tl.exp2((x.to(tl.float32) - top) * LOG2_E - log_total)
        tl.store(y_ptr + column, y, mask=column < columns, eviction_policy="evict_first")


@triton.jit
def backward_kernel(
    y_ptr, dy_ptr, dx_ptr, rows, columns, y_stride, dy_stride,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    columns, y_stride, dy_stride = columns * UNIT, y_stride * UNIT, dy_stride * UNIT
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    inside = (row < rows) & (column < columns)
    y = tl.load(y_ptr + row * y_stride + column, mask=inside, other=0.0)
    dy = tl.load(dy_ptr + row * dy_stride + column, mask=inside, other=0.0)
    dot = tl.sum(y.to(tl.float32) * dy.to(tl.float32), 1, keep_dims=True)
    dx = y.to(tl.float32) * (dy.to(tl.float32) - dot)
    tl.store(dx_ptr + row * columns + column, dx, mask=inside)


@triton.jit
def long_backward_kernel(y_ptr, dy_ptr, dx_ptr, columns, y_stride, dy_stride, COLUMNS: tl.constexpr):
    y_ptr += tl.program_id(0).to(tl.int64) * y_stride
    dy_ptr += tl.program_id(0).to(tl.int64) * dy_stride
    dx_ptr += tl.program_id(0).to(tl.int64) * columns
    products = tl.zeros([COLUMNS], tl.float32)
    for begin in range(0, columns, COLUMNS):
        column = begin + tl.arange(0, COLUMNS)
        y = tl.load(y_ptr + column, mask=column < columns, other=0.0, eviction_policy="evict_last")
        dy = tl.load(dy_ptr + column, mask=column < columns, other=0.0, eviction_policy="evict_last")
        products += y.to(tl.float32) * dy.to(tl.float32)
    dot = tl.sum(products, 0)
    for begin in range(0, columns, COLUMNS):
        column = begin + tl.arange(0, COLUMNS)
        y = tl.load(y_ptr + column, mask=column < columns, other=0.0, eviction_policy="evict_first")
        dy = tl.load(dy_ptr + column, mask=column < columns, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - dot)
        tl.store(dx_ptr + column, dx, mask=column < columns, eviction_policy="evict_first")


def reference(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.float(), -1).to(x.dtype)


@op("softmax", has_backward=True)
def _op(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    y = x.new_empty(x.shape)
    x = dense_rows(x)
    call = call_of(forward_kernel, x, y.data_ptr())
    if again(call, x):
        return y
    if is_torchs("softmax", bits(x), x.device, rows=rows, columns=columns):
        return torch.softmax(x, -1).contiguous()
    high, wide, warps = tile(columns, 64 // x.element_size())
    if columns <= FORWARD_COLUMNS:
        unit, sizes = in_units(x, columns, x.stride(0))
        start(
            forward_kernel, (-(-rows // high),), (x, y, rows, *sizes), x, call,
            UNIT=unit, ROWS=high, COLUMNS=wide, num_warps=warps,
        )  # fmt: skip
    else:
        sharing = 2 if columns <= SHARED_COLUMNS else 1
        start(
            long_forward_kernel, (rows,), (x, y, columns, x.stride(0)), x, call,
            DEPTH=LONG_DEPTH, LANES=LONG_LANES // sharing, num_warps=LONG_WARPS // sharing,
        )  # fmt: skip
    return y


@_op.register_fake
def _op_shapes(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape)


@op("softmax_backward")
def _backward_op(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    rows, columns = y.shape
    dx = y.new_empty(y.shape)
    y, dy = dense_rows(y), dense_rows(dy)
    high, wide, warps = tile(columns, 16)
    if columns <= BACKWARD_COLUMNS:
        unit, sizes = in_units(y, columns, y.stride(0), dy.stride(0))
        start(
            backward_kernel, (-(-rows // high),), (y, dy, dx, rows, *sizes), y,
            UNIT=unit, ROWS=high, COLUMNS=wide, num_warps=warps,
        )  # fmt: skip
    else:
        arguments = (y, dy, dx, columns, y.stride(0), dy.stride(0))
        start(long_backward_kernel, (rows,), arguments, y, COLUMNS=2 * LONG_LANES, num_warps=LONG_WARPS)
    return dx


@_backward_op.register_fake
def _backward_shapes(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    return y.new_empty(y.shape)


def _keep(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
    ctx.save_for_backward(output)


def _backward(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
    return _backward_op(ctx.saved_tensors[0], dy)


_op.register_autograd(_backward, setup_context=_keep)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Over the last axis, in the type of x."""
    need_dtype(x, of=DTYPES)
    if x.ndim < 1:
        raise Unsupported("x has no axis: use 1 axis or more")
    # A step past the last column must not go beyond 32 bits.
    columns = x.shape[-1]
    if columns > MOST_ELEMENTS - LONG_DEPTH * LONG_LANES or x.numel() // max(columns, 1) > MOST_ELEMENTS:
        raise Unsupported(f"x of shape {tuple(x.shape)} has too many rows or columns: split the tensor")
    if not launches(x) or x.numel() == 0:
        return reference(x)
    return shaped(_op(as_rows(x)), x)


def inputs(
    *, rows: int, columns: int, dtype: torch.dtype = torch.bfloat16, device: str = "cuda"
) -> tuple[torch.Tensor]:
    return ((4 * torch.randn(rows, columns, device=device)).to(dtype),)


def cost(*, rows: int, columns: int, dtype: torch.dtype = torch.bfloat16) -> Cost:
    """x in, y out."""
    return Cost(size_bytes=2 * rows * columns * dtype.itemsize, flops=5 * rows * columns)


ENTRY = Kernel(
    name="softmax",
    formula="y = exp(x - max(x)) / sum(exp(x - max(x)))",
    run=softmax,
    reference=reference,
    inputs=inputs,
    cases=(
        {"rows": 1, "columns": 1},
        {"rows": 70, "columns": 100},
        {"rows": 5, "columns": 4097},
        {"rows": 2, "columns": 40_000},
        {"rows": 2, "columns": 70_001},
    ),
    sizes=(
        {"rows": 524_288, "columns": 128},
        {"rows": 65_536, "columns": 2048},
        {"rows": 16_384, "columns": 8192},
        {"rows": 4096, "columns": 32_768},
        {"rows": 2048, "columns": 65_536},
        {"rows": 1024, "columns": 131_072},
    ),
    cost=cost,
)
