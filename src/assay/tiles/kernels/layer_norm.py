"""Norm of rows to mean 0 and variance 1: y = h * weight + bias, h = (x - mean(x)) * rsqrt(var(x) + eps).

Mean and variance (divided by the count) go over the last axis. With a residual, s = x + residual is rounded
to the type of x, y is the norm of s, and both are given back. Backward, with g = dy * weight:

    ds = rstd * (g - mean(g) - h * mean(g * h)) + (gradient of s as given back)
    dweight = sum over rows of dy * h,    dbias = sum over rows of dy

A row lies in registers, so that the variance is summed from differences to the mean and not from squares.
Backward each program walks over many rows and keeps its own sums for weight and bias; torch adds these up.
Rows of more than 8192 elements spill registers backward. Not covered: rows of more than 32768 elements,
weight and bias of another type than x or left out, second derivatives.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from assay.tiles.choice import bits, is_torchs
from assay.tiles.kernel import Cost, Kernel, launches
from assay.tiles.launch import again, call_of, start
from assay.tiles.op import op
from assay.tiles.rows import as_rows, dense_rows, in_units, need_rows, shaped, stages, tile, walkers


@triton.jit
def forward_kernel(
    x_ptr, residual_ptr, weight_ptr, bias_ptr, y_ptr, sum_ptr, mean_ptr, rstd_ptr,
    rows, columns, x_stride, residual_stride, eps,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    columns, x_stride, residual_stride = columns * UNIT, x_stride * UNIT, residual_stride * UNIT
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    # Full tiles of the weight too: loads of one row would be laid out over the threads in another way than x.
    column = tl.broadcast_to(tl.arange(0, COLUMNS)[None, :], [ROWS, COLUMNS])
    inside = (row < rows) & (column < columns)
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    if residual_ptr is not None:
        x += tl.load(residual_ptr + row * residual_stride + column, mask=inside, other=0.0).to(tl.float32)
        x = x.to(sum_ptr.dtype.element_ty)
        tl.store(sum_ptr + row * columns + column, x, mask=inside)
        x = x.to(tl.float32)
    mean = tl.sum(x, 1, keep_dims=True) / columns
    apart = tl.where(inside, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(apart * apart, 1, keep_dims=True) / columns + eps)
    # Not before: while the row is on its way they would hold registers that more rows at once can use.
    weight = tl.load(weight_ptr + column, mask=column < columns, other=0.0)
    bias = tl.load(bias_ptr + column, mask=column < columns, other=0.0)
    y = apart * rstd * weight.to(tl.float32) + bias.to(tl.float32)
    tl.store(y_ptr + row * columns + column, y, mask=inside)
    tl.store(mean_ptr + row, mean, mask=row < rows)
    tl.store(rstd_ptr + row, rstd, mask=row < rows)


@triton.jit
def backward_kernel(
    x_ptr, weight_ptr, mean_ptr, rstd_ptr, dy_ptr, dsum_ptr, dx_ptr, dweight_ptr, dbias_ptr,
    rows, columns, x_stride, dy_stride, dsum_stride,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    columns, x_stride = columns * UNIT, x_stride * UNIT
    dy_stride, dsum_stride = dy_stride * UNIT, dsum_stride * UNIT
    # Full tiles of the weight too: loads of one row would be laid out over the threads in another way than x.
    column = tl.broadcast_to(tl.arange(0, COLUMNS)[None, :], [ROWS, COLUMNS])
    weight = tl.load(weight_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
    dweight = tl.zeros([ROWS, COLUMNS], tl.float32)
    dbias = tl.zeros([ROWS, COLUMNS], tl.float32)
    for step in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = step * ROWS + tl.arange(0, ROWS).to(tl.int64)
        mean = tl.load(mean_ptr + row, mask=row < rows, other=0.0)[:, None]
        rstd = tl.load(rstd_ptr + row, mask=row < rows, other=0.0)[:, None]
        row = row[:, None]
        inside = (row < rows) & (column < columns)
        x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * dy_stride + column, mask=inside, other=0.0).to(tl.float32)
        # Outside of the row h is not 0, but dy and weight are.
        h = (x - mean) * rstd
        slope = tl.sum(dy * weight, 1, keep_dims=True) / columns
        dot = tl.sum(dy * h * weight, 1, keep_dims=True) / columns
        dweight += dy * h
        dbias += dy
        dx = (dy * rstd) * weight - (slope + h * dot) * rstd
        if dsum_ptr is not None:
            dx += tl.load(dsum_ptr + row * dsum_stride + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * columns + column, dx, mask=inside)
    column = tl.arange(0, COLUMNS)
    place = tl.program_id(0).to(tl.int64) * columns + column
    tl.store(dweight_ptr + place, tl.sum(dweight, 0), mask=column < columns)
    tl.store(dbias_ptr + place, tl.sum(dbias, 0), mask=column < columns)


def reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    s = x if residual is None else (x.float() + residual.float()).to(x.dtype)
    wide = s.float()
    variance, mean = torch.var_mean(wide, -1, correction=0, keepdim=True)
    y = ((wide - mean) * torch.rsqrt(variance + eps) * weight.float() + bias.float()).to(x.dtype)
    return y if residual is None else (y, s)


@op("layer_norm", has_backward=True)
def _op(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The norm, the sum (empty where there is no residual), and each row's mean and rstd."""
    rows, columns = x.shape
    y, total, mean, rstd = _op_shapes(x, weight, bias, residual, eps)
    x, weight, bias = dense_rows(x), weight.contiguous(), bias.contiguous()
    residual = None if residual is None else dense_rows(residual)
    places = (made.data_ptr() for made in (y, total, mean, rstd))
    call = call_of(forward_kernel, x, residual, weight, bias, eps, *places)
    if again(call, x):
        return y, total, mean, rstd
    kind = bits(x) + ("" if residual is None else " residual")
    if is_torchs("layer_norm", kind, x.device, rows=rows, columns=columns):
        total = total if residual is None else torch.add(x, residual, out=total)
        y, *kept = torch.native_layer_norm(x if residual is None else total, weight.shape, weight, bias, eps)
        mean, rstd = (each.float().view(rows) for each in kept)
        return y.contiguous(), total, mean, rstd
    high, wide, warps = tile(columns, 64 // x.element_size())
    unit, sizes = in_units(x, columns, x.stride(0), 0 if residual is None else residual.stride(0))
    start(
        forward_kernel, (-(-rows // high),),
        (x, residual, weight, bias, y, total, mean, rstd, rows, *sizes, eps), x, call,
        UNIT=unit, ROWS=high, COLUMNS=wide, num_warps=warps,
    )  # fmt: skip
    return y, total, mean, rstd


@_op.register_fake
def _op_shapes(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    mean = x.new_empty(x.shape[0], dtype=torch.float32)
    return x.new_empty(x.shape), x.new_empty(0 if residual is None else x.shape), mean, torch.empty_like(mean)


@op("layer_norm_backward")
def _backward_op(
    x: torch.Tensor,
    weight: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    dy: torch.Tensor,
    dsum: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows, columns = x.shape
    x, weight, dy = dense_rows(x), weight.contiguous(), dense_rows(dy)
    dsum = None if dsum is None else dense_rows(dsum)
    high, wide, warps = tile(columns, 16)
    programs = walkers(triton.cdiv(rows, high), warps, x.device)
    dx = x.new_empty(x.shape)
    parts = x.new_empty((2, programs, columns), dtype=torch.float32)
    copied = 2 if dsum is None else 3
    steps = x.stride(0), dy.stride(0), 0 if dsum is None else dsum.stride(0)
    unit, sizes = in_units(x, columns, *steps)
    start(
        backward_kernel, (programs,),
        (x, weight, mean, rstd, dy, dsum, dx, parts[0], parts[1], rows, *sizes), x,
        UNIT=unit, ROWS=high, COLUMNS=wide, STAGES=stages(copied * high * wide * x.element_size()),
        num_warps=warps,
    )  # fmt: skip
    return dx, parts[0].sum(0).to(weight.dtype), parts[1].sum(0).to(weight.dtype)


@_backward_op.register_fake
def _backward_shapes(
    x: torch.Tensor,
    weight: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    dy: torch.Tensor,
    dsum: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape), weight.new_empty(weight.shape), weight.new_empty(weight.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    x, weight, _, residual, _ = inputs
    _, total, mean, rstd = output
    # Zeros in place of a gradient that is not there would have to be read.
    ctx.set_materialize_grads(False)
    ctx.has_residual = residual is not None
    ctx.mark_non_differentiable(mean, rstd)
    ctx.save_for_backward(total if ctx.has_residual else x, weight, mean, rstd)


def _backward(
    ctx: Any, dy: torch.Tensor | None, dsum: torch.Tensor | None, *_: torch.Tensor | None
) -> tuple[torch.Tensor | None, ...]:
    if dy is None:
        return dsum, None, None, dsum, None
    x, weight, mean, rstd = ctx.saved_tensors
    dx, dweight, dbias = _backward_op(x, weight, mean, rstd, dy, dsum if ctx.has_residual else None)
    return dx, dweight, dbias, dx if ctx.has_residual else None, None


_op.register_autograd(_backward, setup_context=_keep)


def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Normalizes over the last axis; with a residual, gives back (y, x + residual)."""
    need_rows(x, residual, weight, bias)
    if not launches(x, weight, bias, *(() if residual is None else (residual,))) or x.numel() == 0:
        return reference(x, weight, bias, residual, eps)
    added = None if residual is None else as_rows(residual)
    y, total, _, _ = _op(as_rows(x), weight, bias, added, eps)
    return shaped(y, x) if residual is None else (shaped(y, x), shaped(total, x))


def inputs(
    *,
    rows: int,
    columns: int,
    residual: bool = False,
    dtype: torch.dtype = torch.bfloat16,
    device: str = "cuda",
) -> tuple[Any, ...]:
    # Far from 0, where a variance summed from squares would be wrong.
    x = (10 + torch.randn(rows, columns, device=device)).to(dtype)
    weight = (1 + 0.1 * torch.randn(columns, device=device)).to(dtype)
    bias = torch.randn(columns, device=device).to(dtype)
    return (
        (x, weight, bias, torch.randn(rows, columns, device=device).to(dtype))
        if residual
        else (x, weight, bias)
    )


def cost(*, rows: int, columns: int, residual: bool = False, dtype: torch.dtype = torch.bfloat16) -> Cost:
    """x in and y out; with a residual that in and the sum out; weight, bias; a mean and rstd per row."""
    elements = rows * columns
    passes = 4 if residual else 2
    size_bytes = (passes * elements + 2 * columns) * dtype.itemsize + 8 * rows
    return Cost(size_bytes=size_bytes, flops=(8 if residual else 7) * elements)


ENTRY = Kernel(
    name="layer_norm",
    formula="y = (x - mean(x)) * rsqrt(var(x) + eps) * weight + bias",
    run=layer_norm,
    reference=reference,
    inputs=inputs,
    cases=(
        {"rows": 1, "columns": 1},
        {"rows": 37, "columns": 100},
        {"rows": 70, "columns": 128, "residual": True},
        {"rows": 5, "columns": 4097, "residual": True},
        {"rows": 3, "columns": 8192},
    ),
    sizes=(
        {"rows": 131_072, "columns": 768},
        {"rows": 32_768, "columns": 4096},
        {"rows": 16_384, "columns": 8192},
        {"rows": 32_768, "columns": 4096, "residual": True},
        {"rows": 16_384, "columns": 5120, "residual": True},
    ),
    cost=cost,
)
