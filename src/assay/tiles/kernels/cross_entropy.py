"""Cross entropy of rows of logits with a target class: loss = log(sum(exp(x))) - x[target], 0 if ignored.

`reduction` is "mean", over the rows that are not ignored (NaN if all are, as in torch), or "none". Backward,
from x and the kept logarithm of the sum L: dx = (exp(x - L) - (column == target)) * dloss, 0 where ignored.

Logits are read once forward: rows of up to 4096 lie in registers, of longer ones every lane has a running
maximum and sum of its own, put together at the end. Rows may begin anywhere; from the first whole vector on,
long ones are read in vectors all the same. A target outside of the classes that is not `ignore_index` makes
the loss and gradient of its row NaN on a GPU (checking would make the host wait), an error on a CPU. Not
covered: class weights, label smoothing, targets as probabilities, "sum", a class axis other than the last of
two, second derivatives.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from assay.tiles.kernel import MOST_ELEMENTS, Cost, Kernel, Unsupported, launches, need_dtype
from assay.tiles.kernels.softmax import LOG2_E, fold
from assay.tiles.launch import start
from assay.tiles.op import op
from assay.tiles.rows import DTYPES, dense_rows, in_units, tile, unit_of

HELD_COLUMNS = 4096
STEP_COLUMNS = 2048
STEP_DEPTH = 4
"""Of a long row, so many columns at a time, and of each lane so many: a thread has 32."""
BACKWARD_COLUMNS = 4096
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def tell(logsum, picked, target, row, rows, columns, told_ptr, logsum_ptr, ignored):
    """Writes the losses of rows, whether each counts, and the logarithms of their sums."""
    is_ignored = target == ignored
    # Kept as NaN for a target that is no class: the gradient then is NaN as well.
    logsum = tl.where(is_ignored | ((target >= 0) & (target < columns)), logsum, float("nan"))
    tl.store(told_ptr + row, tl.where(is_ignored, 0.0, logsum - picked), mask=row < rows)
    tl.store(told_ptr + rows + row, tl.where(is_ignored, 0.0, 1.0), mask=row < rows)
    tl.store(logsum_ptr + row, logsum, mask=row < rows)


@triton.jit
def held_forward_kernel(
    x_ptr, target_ptr, told_ptr, logsum_ptr, rows, columns, x_stride, ignored,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    columns, x_stride = columns * UNIT, x_stride * UNIT
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)[None, :]
    inside = (row < rows)[:, None] & (column < columns)
    target = tl.load(target_ptr + row, mask=row < rows, other=0)
    x = tl.load(x_ptr + row[:, None] * x_stride + column, mask=inside, other=-float("inf")).to(tl.float32)
    top = tl.max(x, 1)
    total = tl.sum(tl.exp2((x - top[:, None]) * LOG2_E), 1)
    picked = tl.sum(tl.where(column == target[:, None], x, 0.0), 1)
    tell(top + LN_2 * tl.log2(total), picked, target, row, rows, columns, told_ptr, logsum_ptr, ignored)


@triton.jit
def long_forward_kernel(
    x_ptr, target_ptr, told_ptr, logsum_ptr, rows, columns, x_stride, ignored,
    VECTOR: tl.constexpr, DEPTH: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    ahead = ((row * x_stride) % VECTOR).to(tl.int32)
    # From the vector in which the row begins.
    x_row = x_ptr + tl.multiple_of(row * x_stride - ahead, VECTOR)
    end = ahead + columns
    place = tl.arange(0, DEPTH)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    x = tl.load(x_row + place, mask=(place >= ahead) & (place < end), other=-float("inf"))
    empty = tl.full([LANES], -float("inf"), tl.float32)
    tops, totals = fold(x.to(tl.float32), empty, tl.zeros([LANES], tl.float32), 0)
    target = tl.load(target_ptr + row)
    picked = tl.load(x_ptr + row * x_stride + target, mask=(target >= 0) & (target < columns), other=0.0)
    last = end // (DEPTH * LANES) * (DEPTH * LANES)
    for begin in range(DEPTH * LANES, last, DEPTH * LANES):
        tops, totals = fold(tl.load(x_row + begin + place).to(tl.float32), tops, totals, 0)
    x = tl.load(x_row + last + place, mask=place < end - last, other=-float("inf"))
    tops, totals = fold(x.to(tl.float32), tops, totals, 0)
    top = tl.max(tops, 0)
    logsum = top + LN_2 * tl.log2(tl.sum(totals * tl.exp2((tops - top) * LOG2_E), 0))
    picked = picked.to(tl.float32)
    tell(logsum, picked, target, row, rows, columns, told_ptr, logsum_ptr, ignored)


@triton.jit
def backward_kernel(
    x_ptr, target_ptr, logsum_ptr, dloss_ptr, dx_ptr, rows, columns, x_stride, dloss_stride, ignored,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    columns, x_stride = columns * UNIT, x_stride * UNIT
    blocks = tl.cdiv(columns, COLUMNS)
    row = (tl.program_id(0) // blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    target = tl.load(target_ptr + row, mask=row < rows, other=0)[:, None]
    logsum = tl.load(logsum_ptr + row, mask=row < rows, other=0.0)[:, None]
    dloss = tl.load(dloss_ptr + row * dloss_stride, mask=row < rows, other=0.0)[:, None]
    row = row[:, None]
    column = (tl.program_id(0) % blocks) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = (row < rows) & (column < columns)
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    dx = (tl.exp2((x - logsum) * LOG2_E) - tl.where(column == target, 1.0, 0.0)) * dloss
    tl.store(dx_ptr + row * columns + column, tl.where(target == ignored, 0.0, dx), mask=inside)


def reference(
    logits: torch.Tensor, targets: torch.Tensor, ignore_index: int = -100, reduction: str = "mean"
) -> torch.Tensor:
    losses = torch.nn.functional.cross_entropy(
        logits.float(), targets, ignore_index=ignore_index, reduction=reduction
    )
    return losses.to(logits.dtype)


@op("cross_entropy", has_backward=True)
def _op(logits: torch.Tensor, targets: torch.Tensor, ignore_index: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each row the loss and whether it counts, side by side, and the logarithm of its sum; in float32."""
    rows, columns = logits.shape
    told, logsums = _op_shapes(logits, targets, ignore_index)
    logits, targets = dense_rows(logits), targets.contiguous()
    tensors, stride = (logits, targets, told, logsums), logits.stride(0)
    if columns <= HELD_COLUMNS:
        unit, sizes = in_units(logits, columns, stride)
        high, wide, warps = tile(columns, 64 // logits.element_size())
        start(
            held_forward_kernel, (-(-rows // high),), (*tensors, rows, *sizes, ignore_index), logits,
            UNIT=unit, ROWS=high, COLUMNS=wide, num_warps=warps,
        )  # fmt: skip
    else:
        start(
            long_forward_kernel, (rows,), (*tensors, rows, columns, stride, ignore_index), logits,
            VECTOR=unit_of(logits), DEPTH=STEP_DEPTH, LANES=STEP_COLUMNS // STEP_DEPTH,
            num_warps=STEP_COLUMNS // 1024,
        )  # fmt: skip
    return told, logsums


@_op.register_fake
def _op_shapes(
    logits: torch.Tensor, targets: torch.Tensor, ignore_index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    told = logits.new_empty((2, logits.shape[0]), dtype=torch.float32)
    return told, told.new_empty(logits.shape[0])


@op("cross_entropy_backward")
def _backward_op(
    logits: torch.Tensor,
    targets: torch.Tensor,
    logsums: torch.Tensor,
    dlosses: torch.Tensor,
    ignore_index: int,
) -> torch.Tensor:
    rows, columns = logits.shape
    dlogits = logits.new_empty(logits.shape)
    logits, targets = dense_rows(logits), targets.contiguous()
    unit, sizes = in_units(logits, columns, logits.stride(0))
    wide = min(max(triton.next_power_of_2(columns), 16), BACKWARD_COLUMNS)
    high = BACKWARD_COLUMNS // wide
    start(
        backward_kernel, (triton.cdiv(rows, high) * triton.cdiv(columns, wide),),
        (logits, targets, logsums, dlosses, dlogits, rows, *sizes, dlosses.stride(0), ignore_index),
        logits, UNIT=unit, ROWS=high, COLUMNS=wide, num_warps=4,
    )  # fmt: skip
    return dlogits


@_backward_op.register_fake
def _backward_shapes(
    logits: torch.Tensor,
    targets: torch.Tensor,
    logsums: torch.Tensor,
    dlosses: torch.Tensor,
    ignore_index: int,
) -> torch.Tensor:
    return logits.new_empty(logits.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    logits, targets, ctx.ignore_index = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(logits, targets, output[1])


def _backward(ctx: Any, dtold: torch.Tensor, _: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    return _backward_op(*ctx.saved_tensors, dtold[0], ctx.ignore_index), None, None


_op.register_autograd(_backward, setup_context=_keep)


def cross_entropy(
    logits: torch.Tensor, targets: torch.Tensor, ignore_index: int = -100, reduction: str = "mean"
) -> torch.Tensor:
    """Of logits (rows, classes) and int64 targets (rows,): one loss, or one per row, in the logits' type."""
    need_dtype(logits, of=DTYPES)
    if targets.dtype != torch.int64:
        raise Unsupported(f"targets of {targets.dtype} are not supported: use int64")
    if logits.ndim != 2 or targets.shape != logits.shape[:1]:
        shapes = f"{tuple(logits.shape)} and {tuple(targets.shape)}"
        raise Unsupported(f"logits and targets of {shapes}: use (rows, classes) and (rows,)")
    if reduction not in ("mean", "none"):
        raise Unsupported(f"reduction '{reduction}' is not supported: use mean or none")
    if max(logits.shape) > MOST_ELEMENTS - STEP_COLUMNS:
        raise Unsupported(f"logits of shape {tuple(logits.shape)} have too many rows or classes: split them")
    if not launches(logits, targets) or logits.numel() == 0:
        return reference(logits, targets, ignore_index, reduction)
    told, _ = _op(logits, targets, ignore_index)
    if reduction == "none":
        return told[0].to(logits.dtype)
    total, counted = told.sum(1)
    return (total / counted).to(logits.dtype)


def inputs(
    *, rows: int, columns: int, dtype: torch.dtype = torch.bfloat16, device: str = "cuda"
) -> tuple[torch.Tensor, torch.Tensor]:
    """One target in eight is ignored."""
    logits = (4 * torch.randn(rows, columns, device=device)).to(dtype)
    targets = torch.randint(columns, (rows,), device=device)
    return logits, targets.masked_fill(torch.arange(rows, device=device) % 8 == 7, -100)


def cost(*, rows: int, columns: int, dtype: torch.dtype = torch.bfloat16) -> Cost:
    """Logits and targets in, one loss out."""
    return Cost(size_bytes=rows * columns * dtype.itemsize + 8 * rows, flops=4 * rows * columns)


ENTRY = Kernel(
    name="cross_entropy",
    formula="loss = mean over rows of log(sum(exp(x))) - x[target]",
    run=cross_entropy,
    reference=reference,
    inputs=inputs,
    cases=(
        {"rows": 1, "columns": 1},
        {"rows": 300, "columns": 10},
        {"rows": 33, "columns": 1000},
        {"rows": 3, "columns": 8192},
        {"rows": 2, "columns": 20_001},
    ),
    sizes=(
        {"rows": 65_536, "columns": 1000},
        {"rows": 16_384, "columns": 32_000},
        {"rows": 8192, "columns": 50_257},
        {"rows": 8192, "columns": 128_256},
    ),
    cost=cost,
)
