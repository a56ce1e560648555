"""Cross entropy of rows of logits with a target class: loss = log(sum(exp(x))) - x[target], 0 if ignored.

`reduction` is "mean", over the rows that are not ignored (NaN if all are, as in torch), or "none". Backward,
from x and the kept logarithm of the sum L: dx = (exp(x - L) - (column == target)) * dloss, 0 where ignored.

Logits are read once forward: every lane has a running maximum and sum of its own, put together at the end of
the row. A target outside of the classes that is not `ignore_index` makes the loss and gradient of its row NaN
on a GPU (checking would make the host wait), an error on a CPU. Not covered: class weights, label smoothing,
targets as probabilities, "sum", a class axis other than the last of two, second derivatives.
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
from assay.tiles.rows import DTYPES, dense_rows

STEP_COLUMNS = 2048
TILE_ELEMENTS = 1024
BACKWARD_COLUMNS = 4096
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def forward_kernel(
    x_ptr, target_ptr, loss_ptr, logsum_ptr, rows, columns, x_stride, ignored,
    ROWS: tl.constexpr, DEPTH: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    place = tl.arange(0, DEPTH)[None, :, None] * LANES + tl.arange(0, LANES)[None, None, :]
    tops = tl.full([ROWS, LANES], -float("inf"), tl.float32)
    totals = tl.zeros([ROWS, LANES], tl.float32)
    for begin in range(0, columns, DEPTH * LANES):
        column = begin + place
        inside = (row < rows)[:, None, None] & (column < columns)
        x = tl.load(x_ptr + row[:, None, None] * x_stride + column, mask=inside, other=-float("inf"))
        tops, totals = fold(x.to(tl.float32), tops, totals, 1)
    top = tl.max(tops, 1)
    logsum = top + LN_2 * tl.log2(tl.sum(totals * tl.exp2((tops - top[:, None]) * LOG2_E), 1))
    target = tl.load(target_ptr + row, mask=row < rows, other=0)
    inside = (row < rows) & (target >= 0) & (target < columns)
    picked = tl.load(x_ptr + row * x_stride + target, mask=inside & (target != ignored), other=float("nan"))
    # Kept as NaN for a target that is no class: the gradient then is NaN as well.
    logsum = tl.where(inside | (target == ignored), logsum, float("nan"))
    loss = tl.where(target == ignored, 0.0, logsum - picked.to(tl.float32))
    tl.store(loss_ptr + row, loss, mask=row < rows)
    tl.store(logsum_ptr + row, logsum, mask=row < rows)


@triton.jit
def backward_kernel(
    x_ptr, target_ptr, logsum_ptr, dloss_ptr, dx_ptr, rows, columns, x_stride, ignored,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(columns, COLUMNS)
    row = (tl.program_id(0) // blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    target = tl.load(target_ptr + row, mask=row < rows, other=0)[:, None]
    logsum = tl.load(logsum_ptr + row, mask=row < rows, other=0.0)[:, None]
    dloss = tl.load(dloss_ptr + row, mask=row < rows, other=0.0)[:, None]
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


def forward_tile(columns: int) -> tuple[int, int, int]:
    """Rows, depth and lanes of a program's tile, of which every thread has 32 elements."""
    width = min(max(triton.next_power_of_2(columns), 16), STEP_COLUMNS)
    depth = min(max(width // 256, 1), 4)
    return max(1, TILE_ELEMENTS // width), depth, width // depth


@op("cross_entropy", has_backward=True)
def _op(logits: torch.Tensor, targets: torch.Tensor, ignore_index: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and logarithm of the sum of each row, in float32."""
    rows, columns = logits.shape
    losses, logsums = _op_shapes(logits, targets, ignore_index)
    logits, targets = dense_rows(logits), targets.contiguous()
    high, depth, lanes = forward_tile(columns)
    start(
        forward_kernel, (-(-rows // high),),
        (logits, targets, losses, logsums, rows, columns, logits.stride(0), ignore_index), logits,
        ROWS=high, DEPTH=depth, LANES=lanes, num_warps=high * depth * lanes // 1024,
    )  # fmt: skip
    return losses, logsums


@_op.register_fake
def _op_shapes(
    logits: torch.Tensor, targets: torch.Tensor, ignore_index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    losses = logits.new_empty(logits.shape[0], dtype=torch.float32)
    return losses, torch.empty_like(losses)


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
    logits, targets, dlosses = dense_rows(logits), targets.contiguous(), dlosses.contiguous()
    wide = min(max(triton.next_power_of_2(columns), 16), BACKWARD_COLUMNS)
    high = BACKWARD_COLUMNS // wide
    start(
        backward_kernel, (triton.cdiv(rows, high) * triton.cdiv(columns, wide),),
        (logits, targets, logsums, dlosses, dlogits, rows, columns, logits.stride(0), ignore_index), logits,
        ROWS=high, COLUMNS=wide, num_warps=4,
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


def _backward(ctx: Any, dlosses: torch.Tensor, _: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    return _backward_op(*ctx.saved_tensors, dlosses, ctx.ignore_index), None, None


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
    losses, _ = _op(logits, targets, ignore_index)
    if reduction == "mean":
        losses = losses.sum() / (targets != ignore_index).sum()
    return losses.to(logits.dtype)


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
