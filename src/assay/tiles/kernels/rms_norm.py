"""Root mean square norm of rows: y = x * rsqrt(mean(x^2) + eps) * weight, the mean over the last axis.

With a residual, s = x + residual is rounded to the type of x, y is the norm of s, and both are given back.
Backward, with h = s * rstd and g = dy * weight:

    ds = rstd * (g - h * mean(g * h)) + (gradient of s as given back)
    dweight = sum over rows of dy * h

A row lies in registers, several short ones in one program. Backward each program walks over many rows and
keeps its own sum for the weight; torch adds these up. Rows of more than 8192 elements spill registers
backward. Not covered: rows of more than 32768 elements, a weight of another type than x, second derivatives.
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
    x_ptr, residual_ptr, weight_ptr, y_ptr, sum_ptr, rows, columns, x_stride, residual_stride, eps,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    columns, x_stride, residual_stride = columns * UNIT, x_stride * UNIT, residual_stride * UNIT
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    # Full tiles of the weight too: loads of one row would be laid out over the threads in another way than x.
    column = tl.broadcast_to(tl.arange(0, COLUMNS)[None, :], [ROWS, COLUMNS])
    inside = (row < rows) & (column < columns)
    weight = tl.load(weight_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    if residual_ptr is not None:
        x += tl.load(residual_ptr + row * residual_stride + column, mask=inside, other=0.0).to(tl.float32)
        x = x.to(sum_ptr.dtype.element_ty)
        tl.store(sum_ptr + row * columns + column, x, mask=inside)
        x = x.to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, 1, keep_dims=True) / columns + eps)
    tl.store(y_ptr + row * columns + column, x * rstd * weight, mask=inside)


@triton.jit
def backward_kernel(
    x_ptr, weight_ptr, dy_ptr, dsum_ptr, dx_ptr, dweight_ptr,
    rows, columns, x_stride, dy_stride, dsum_stride, eps,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    columns, x_stride = columns * UNIT, x_stride * UNIT
    dy_stride, dsum_stride = dy_stride * UNIT, dsum_stride * UNIT
    # Full tiles of the weight too: loads of one row would be laid out over the threads in another way than x.
    column = tl.broadcast_to(tl.arange(0, COLUMNS)[None, :], [ROWS, COLUMNS])
    weight = tl.load(weight_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
    dweight = tl.zeros([ROWS, COLUMNS], tl.float32)
    for step in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = step * ROWS + tl.arange(0, ROWS)[:, None].to(tl.int64)
        inside = (row < rows) & (column < columns)
        x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * dy_stride + column, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.rsqrt(tl.sum(x * x, 1, keep_dims=True) / columns + eps)
        dot = tl.sum(dy * x * weight, 1, keep_dims=True) / columns
        # Scaled first: what lives past the reductions is then x, dy, weight and dweight alone.
        scaled = dy * rstd
        dweight += scaled * x
        dx = scaled * weight - x * (rstd * rstd * rstd * dot)
        if dsum_ptr is not None:
            dx += tl.load(dsum_ptr + row * dsum_stride + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * columns + column, dx, mask=inside)
    column = tl.arange(0, COLUMNS)
    place = dweight_ptr + tl.program_id(0).to(tl.int64) * columns + column
    tl.store(place, tl.sum(dweight, 0), mask=column < columns)


def reference(
    x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor | None = None, eps: float = 1e-6
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    s = x if residual is None else (x.float() + residual.float()).to(x.dtype)
    wide = s.float()
    rstd = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    y = (wide * rstd * weight.float()).to(x.dtype)
    return y if residual is None else (y, s)


@op("rms_norm", has_backward=True)
def _op(
    x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The norm, and the sum: empty where there is no residual."""
    rows, columns = x.shape
    y, total = _op_shapes(x, weight, residual, eps)
    x, weight = dense_rows(x), weight.contiguous()
    residual = None if residual is None else dense_rows(residual)
    call = call_of(forward_kernel, x, residual, weight, eps, y.data_ptr(), total.data_ptr())
    if again(call, x):
        return y, total
    kind = bits(x) + ("" if residual is None else " residual")
    if is_torchs("rms_norm", kind, x.device, rows=rows, columns=columns):
        total = total if residual is None else torch.add(x, residual, out=total)
        return _normed(x if residual is None else total, weight, eps), total
    high, wide, warps = tile(columns, 64 // x.element_size())
    unit, sizes = in_units(x, columns, x.stride(0), 0 if residual is None else residual.stride(0))
    start(
        forward_kernel, (-(-rows // high),), (x, residual, weight, y, total, rows, *sizes, eps), x, call,
        UNIT=unit, ROWS=high, COLUMNS=wide, num_warps=warps,
    )  # fmt: skip
    return y, total


@_op.register_fake
def _op_shapes(
    x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape), x.new_empty(0 if residual is None else x.shape)


def _normed(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """By torch."""
    return torch.nn.functional.rms_norm(x, weight.shape, weight, eps).contiguous()


@op("rms_norm_backward")
def _backward_op(
    x: torch.Tensor, weight: torch.Tensor, dy: torch.Tensor, dsum: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    rows, columns = x.shape
    x, weight, dy = dense_rows(x), weight.contiguous(), dense_rows(dy)
    dsum = None if dsum is None else dense_rows(dsum)
    high, wide, warps = tile(columns, 16)
    programs = walkers(triton.cdiv(rows, high), warps, x.device)
    dx = x.new_empty(x.shape)
    parts = x.new_empty((programs, columns), dtype=torch.float32)
    copied = 2 if dsum is None else 3
    steps = x.stride(0), dy.stride(0), 0 if dsum is None else dsum.stride(0)
    unit, sizes = in_units(x, columns, *steps)
    start(
        backward_kernel, (programs,), (x, weight, dy, dsum, dx, parts, rows, *sizes, eps), x,
        UNIT=unit, ROWS=high, COLUMNS=wide, STAGES=stages(copied * high * wide * x.element_size()),
        num_warps=warps,
    )  # fmt: skip
    return dx, parts.sum(0).to(weight.dtype)


@_backward_op.register_fake
def _backward_shapes(
    x: torch.Tensor, weight: torch.Tensor, dy: torch.Tensor, dsum: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape), weight.new_empty(weight.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    x, weight, residual, ctx.eps = inputs
    # Zeros in place of a gradient that is not there would have to be read.
    ctx.set_materialize_grads(False)
    ctx.has_residual = residual is not None
    ctx.save_for_backward(output[1] if ctx.has_residual else x, weight)


def _backward(
    ctx: Any, dy: torch.Tensor | None, dsum: torch.Tensor | None
) -> tuple[torch.Tensor | None, ...]:
    if dy is None:
        return dsum, None, dsum, None
    x, weight = ctx.saved_tensors
    dx, dweight = _backward_op(x, weight, dy, dsum if ctx.has_residual else None, ctx.eps)
    return dx, dweight, dx if ctx.has_residual else None, None


_op.register_autograd(_backward, setup_context=_keep)


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor | None = None, eps: float = 1e-6
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Normalizes over the last axis; with a residual, gives back (y, x + residual)."""
    need_rows(x, residual, weight)
    if not launches(x, weight, *(() if residual is None else (residual,))) or x.numel() == 0:
        return reference(x, weight, residual, eps)
    added = None if residual is None else as_rows(residual)
    y, total = _op(as_rows(x), weight, added, eps)
    return shaped(y, x) if residual is None else (shaped(y, x), shaped(total, x))


def inputs(
    *,
    rows: int,
    columns: int,
    residual: bool = False,
    dtype: torch.dtype = torch.bfloat16,
    device: str = "cuda",
) -> tuple[Any, ...]:
    x = torch.randn(rows, columns, device=device).to(dtype)
    weight = (1 + 0.1 * torch.randn(columns, device=device)).to(dtype)
    return (x, weight, torch.randn(rows, columns, device=device).to(dtype)) if residual else (x, weight)


def cost(*, rows: int, columns: int, residual: bool = False, dtype: torch.dtype = torch.bfloat16) -> Cost:
    """x in and y out; with a residual that in and the sum out; the weight once."""
    elements = rows * columns
    passes = 4 if residual else 2
    return Cost(
        size_bytes=(passes * elements + columns) * dtype.itemsize, flops=(5 if residual else 4) * elements
    )


ENTRY = Kernel(
    name="rms_norm",
    formula="y = x * rsqrt(mean(x^2) + eps) * weight",
    run=rms_norm,
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
        {"rows": 524_288, "columns": 128},
        {"rows": 32_768, "columns": 4096},
        {"rows": 16_384, "columns": 8192},
        {"rows": 32_768, "columns": 4096, "residual": True},
        {"rows": 16_384, "columns": 5120, "residual": True},
    ),
    cost=cost,
)
