"""Cross entropy of rows of logits with a target class: loss = log(sum(exp(x))) - x[target], 0 if ignored.

`reduction` is "mean", over the rows that are not ignored (NaN if all are, as in torch), or "none". Backward,
from x and the kept logarithm of the sum L: dx = (exp(x - L) - (column == target)) * dloss, 0 where ignored.

Logits are read once forward. Rows of up to 8192 lie in registers (2064 where they are no whole number of
vectors of 16 bytes), several short ones in one program. Of longer ones every thread has a running maximum and
sum of its own, put together at the end. Those may begin anywhere: their whole vectors are read as such, what
is before and behind element by element. Nothing outside of a row is read. For the mean each program adds up
its rows, and a second kernel the programs, always in the same order. A target outside of the classes that is
not `ignore_index` makes the loss and gradient of its row NaN on a GPU (checking would make the host wait), an
error on a CPU. Not covered: class weights, label smoothing, targets as probabilities, "sum", a class axis
other than the last of two, second derivatives.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
import triton.language as tl

from assay.tiles.kernel import MOST_ELEMENTS, Cost, Kernel, Unsupported, launches, need_dtype
from assay.tiles.kernels.softmax import LOG2_E
from assay.tiles.launch import start
from assay.tiles.op import op
from assay.tiles.rounding import rounded
from assay.tiles.rows import DTYPES, dense_rows, in_units, unit_of

HELD_COLUMNS = 8192
RAGGED_COLUMNS = 2064
"""Longer rows are read in steps; the second is for those that are no whole number of vectors, which have more
than one step then."""
HELD_ELEMENTS = 64
"""Of a thread, unless rows are so short that it would have too many of them."""
HELD_WARPS = 4
MOST_ROWS = 128
STEP_ELEMENTS = 32
"""Of a long row, so many of each thread at a time."""
STEP_COLUMNS = 4096
"""In a step of all threads; half as many in rows that do not have many steps."""
FEW_STEPS_COLUMNS = 16_384
MEAN_PARTS = 8192
MEAN_WARPS = 32
BACKWARD_COLUMNS = 4096
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def add_pairs(a, b, c, d):
    return a + c, b + d


@triton.jit
def picked_of(x_ptr, target_ptr, row, rows, columns, x_stride, ignored):
    """The logits of the targets, NaN where they are no class, and 1 for each row that counts, 0 if ignored.
    They are read on their own: to look for them in what is read anyway takes more time."""
    target = tl.load(target_ptr + row, mask=row < rows, other=0)
    counts = (row < rows) & (target != ignored)
    is_class = (target >= 0) & (target < columns)
    picked = tl.load(x_ptr + row * x_stride + target, mask=counts & is_class, other=0.0).to(tl.float32)
    return tl.where(counts & (is_class == 0), float("nan"), picked), tl.where(counts, 1.0, 0.0)


@triton.jit
def tell(logsum, picked, counted, row, rows, out_ptr, logsum_ptr, IS_MEAN: tl.constexpr):
    """Writes the logarithms of the sums of rows, and their losses or what this program adds to the mean: the
    sum of its losses, and of how many."""
    # Kept as NaN for a target that is no class: the gradient then is NaN as well.
    logsum = tl.where(picked == picked, logsum, float("nan"))
    loss = tl.where(counted > 0, logsum - picked, 0.0)
    tl.store(logsum_ptr + row, logsum, mask=row < rows)
    if IS_MEAN:
        total, number = tl.reduce((loss, counted), 0, add_pairs)
        tl.store(out_ptr + tl.program_id(0), total)
        tl.store(out_ptr + tl.num_programs(0) + tl.program_id(0), number)
    else:
        tl.store(out_ptr + row, loss, mask=row < rows)


@triton.jit
def logsums_of(x, inside):
    """Of each row log(sum(exp(x))); x is (LANES, ROWS, DEPTH, UNIT), of which some vectors are inside."""
    tops = tl.max(tl.where(inside, tl.max(x, 3), -float("inf")), 2)
    # Of a thread's own vectors: no thread waits for another before its powers are summed. Where all is -inf
    # the sum is 0, and -inf - -inf must not spoil it.
    base = tl.where(tops == -float("inf"), 0.0, tops)
    # Scaled after the difference: the lowest finite value, as masks write it, would turn to -inf.
    powers = tl.exp2((x - base[:, :, None, None]) * LOG2_E)
    totals = tl.sum(tl.where(inside, tl.sum(powers, 3), 0.0), 2)
    top = tl.max(tops, 0)
    return top + LN_2 * tl.log2(tl.sum(rounded(totals, tl.exp2((tops - top[None, :]) * LOG2_E)), 0))


@triton.jit
def held_forward_kernel(
    x_ptr, target_ptr, out_ptr, logsum_ptr, rows, columns, x_stride, ignored,
    IS_MEAN: tl.constexpr, UNIT: tl.constexpr, DEPTH: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """A vector is UNIT elements, of which LANES threads that share a row have DEPTH each: the compiler gives
    threads to the last axis first, a vector each, then to the others from the first on."""
    columns, x_stride = columns * UNIT, x_stride * UNIT
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    vector = tl.arange(0, DEPTH)[None, None, :] * LANES + tl.arange(0, LANES)[:, None, None]
    inside = (row < rows)[None, :, None] & (vector * UNIT < columns)
    place = row[None, :, None] * x_stride + vector * UNIT
    x = tl.load(x_ptr + place[:, :, :, None] + tl.arange(0, UNIT), mask=inside[:, :, :, None])
    picked, counted = picked_of(x_ptr, target_ptr, row, rows, columns, x_stride, ignored)
    logsum = logsums_of(x.to(tl.float32), inside)
    tell(logsum, picked, counted, row, rows, out_ptr, logsum_ptr, IS_MEAN)


@triton.jit
def fold(x, top, total):
    """Takes all vectors of each thread, (LANES, DEPTH, UNIT), into its running maximum and sum."""
    higher = tl.maximum(top, tl.max(tl.max(x, 2), 1))
    base = tl.where(higher == -float("inf"), 0.0, higher)
    powers = tl.exp2((x - base[:, None, None]) * LOG2_E)
    return higher, total * tl.exp2((top - base) * LOG2_E) + tl.sum(tl.sum(powers, 2), 1)


@triton.jit
def long_forward_kernel(
    x_ptr, target_ptr, out_ptr, logsum_ptr, rows, columns, x_stride, ignored,
    IS_MEAN: tl.constexpr, UNIT: tl.constexpr, DEPTH: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """One row in steps of LANES * DEPTH vectors, of which it has at least one."""
    row = tl.program_id(0).to(tl.int64) + tl.arange(0, 1)
    begin = tl.program_id(0).to(tl.int64) * x_stride
    ahead = ((UNIT - begin % UNIT) % UNIT).to(tl.int32)
    vectors = (columns - ahead) // UNIT
    x_row = x_ptr + tl.multiple_of(begin + ahead, UNIT)
    vector = tl.arange(0, LANES)[:, None] + tl.arange(0, DEPTH)[None, :] * LANES
    place = (vector * UNIT)[:, :, None] + tl.arange(0, UNIT)
    x = tl.load(x_row + place)
    # What is before the first vector, and behind the last one.
    edge = tl.arange(0, 2 * UNIT)
    is_edge = (edge < ahead) | (edge >= 2 * UNIT - (columns - ahead - vectors * UNIT))
    edge = tl.where(edge < UNIT, edge, columns - 2 * UNIT + edge)
    edges = tl.load(x_ptr + begin + edge, mask=is_edge, other=-float("inf")).to(tl.float32)
    picked, counted = picked_of(x_ptr, target_ptr, row, rows, columns, x_stride, ignored)
    tops = tl.full([LANES], -float("inf"), tl.float32)
    tops, totals = fold(x.to(tl.float32), tops, tl.zeros([LANES], tl.float32))
    steps = vectors // (LANES * DEPTH)
    for step in range(1, steps):
        x = tl.load(x_row + step * (LANES * DEPTH * UNIT) + place)
        tops, totals = fold(x.to(tl.float32), tops, totals)
    left = vectors - steps * (LANES * DEPTH)
    if left > 0:
        is_left = (vector < left)[:, :, None]
        x = tl.load(x_row + steps * (LANES * DEPTH * UNIT) + place, mask=is_left, other=-float("inf"))
        tops, totals = fold(x.to(tl.float32), tops, totals)
    top = tl.maximum(tl.max(tops, 0), tl.max(edges, 0))
    total = tl.sum(rounded(totals, tl.exp2((tops - top) * LOG2_E)), 0)
    total += tl.sum(tl.exp2((edges - top) * LOG2_E), 0)
    logsum = top + LN_2 * tl.log2(total) + tl.zeros([1], tl.float32)
    tell(logsum, picked, counted, row, rows, out_ptr, logsum_ptr, IS_MEAN)


@triton.jit
def mean_kernel(parts_ptr, mean_ptr, counted_ptr, programs, PARTS: tl.constexpr):
    """In one program, from what the others have added up."""
    losses = tl.zeros([PARTS], tl.float32)
    counted = tl.zeros([PARTS], tl.float32)
    for begin in range(0, programs, PARTS):
        part = begin + tl.arange(0, PARTS)
        losses += tl.load(parts_ptr + part, mask=part < programs, other=0.0)
        counted += tl.load(parts_ptr + programs + part, mask=part < programs, other=0.0)
    number = tl.sum(counted, 0)
    tl.store(counted_ptr, number)
    tl.store(mean_ptr, tl.div_rn(tl.sum(losses, 0), number))


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
    dloss = tl.load(dloss_ptr + row * dloss_stride, mask=row < rows, other=0.0).to(tl.float32)[:, None]
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


@functools.cache
def held_tile(columns: int, unit: int) -> tuple[int, int, int]:
    """Vectors of a thread in each row, rows, and threads of a row: enough to read 128 bytes side by side, as
    long as that is not more than a warp."""
    width = int(triton.next_power_of_2(columns))
    lanes = min(max(width // HELD_ELEMENTS, min(HELD_ELEMENTS // unit, 32)), width // unit)
    rows = min(32 * HELD_WARPS * HELD_ELEMENTS // width, MOST_ROWS)
    return width // unit // lanes, rows, lanes


@op("cross_entropy", has_backward=True)
def _op(
    logits: torch.Tensor, targets: torch.Tensor, ignore_index: int, is_mean: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The losses or their mean, the logarithms of the sums of rows, and of a mean, of how many rows it is."""
    rows, columns = logits.shape
    out, logsums, counted = _op_shapes(logits, targets, ignore_index, is_mean)
    logits, targets = dense_rows(logits), targets.contiguous()
    whole = unit_of(logits)
    unit, sizes = in_units(logits, columns, logits.stride(0))
    if columns <= (HELD_COLUMNS if unit == whole else RAGGED_COLUMNS):
        depth, high, lanes = held_tile(columns, unit)
        kernel, warps = held_forward_kernel, HELD_WARPS
        constants = {"UNIT": unit, "DEPTH": depth, "ROWS": high, "LANES": lanes}
    else:
        warps = STEP_COLUMNS // (STEP_ELEMENTS * 32) // (2 if columns <= FEW_STEPS_COLUMNS else 1)
        kernel, sizes, high = long_forward_kernel, [columns, logits.stride(0)], 1
        constants = {"UNIT": whole, "DEPTH": STEP_ELEMENTS // whole, "LANES": 32 * warps}
    programs = -(-rows // high)
    told = logsums.new_empty((2, programs)) if is_mean else out
    tensors = (logits, targets, told, logsums)
    start(
        kernel, (programs,), (*tensors, rows, *sizes, ignore_index), logits,
        IS_MEAN=is_mean, **constants, num_warps=warps,
    )  # fmt: skip
    if is_mean:
        start(
            mean_kernel, (1,), (told, out, counted, programs), logits, PARTS=MEAN_PARTS, num_warps=MEAN_WARPS
        )
    return out, logsums, counted


@_op.register_fake
def _op_shapes(
    logits: torch.Tensor, targets: torch.Tensor, ignore_index: int, is_mean: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows = logits.shape[0]
    logsums = logits.new_empty(rows, dtype=torch.float32)
    return logits.new_empty(() if is_mean else rows), logsums, logsums.new_empty(1 if is_mean else 0)


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
    logits, targets, ctx.ignore_index, ctx.is_mean = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(logits, targets, *output[1:])


def _backward(ctx: Any, dout: torch.Tensor, *_: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    logits, targets, logsums, counted = ctx.saved_tensors
    dlosses = (dout.float() / counted).expand(logsums.shape[0]) if ctx.is_mean else dout
    return _backward_op(logits, targets, logsums, dlosses, ctx.ignore_index), None, None, None


_op.register_autograd(_backward, setup_context=_keep)


def cross_entropy(
    logits: torch.Tensor, targets: torch.Tensor, ignore_index: int = -100, reduction: str = "mean"
) -> torch.Tensor:
    """Of logits (rows, classes) and int64 targets (rows,): one loss, or one per row, in the logits' type."""
    need_dtype(logits, of=DTYPES)
    if targets.dtype != torch.int64:
        raise Unsupported(f"targets of {targets.dtype} are not supported: use int64")
    if logits.ndim != 2 or targets.shape != logits.shape[:1] or 0 == logits.shape[1] < len(logits):
        shapes = f"{tuple(logits.shape)} and {tuple(targets.shape)}"
        raise Unsupported(f"logits and targets of {shapes}: use (rows, classes), one at least, and (rows,)")
    if reduction not in ("mean", "none"):
        raise Unsupported(f"reduction '{reduction}' is not supported: use mean or none")
    if max(logits.shape) > MOST_ELEMENTS - MEAN_PARTS:
        raise Unsupported(f"logits of shape {tuple(logits.shape)} have too many rows or classes: split them")
    if not launches(logits, targets) or logits.numel() == 0:
        return reference(logits, targets, ignore_index, reduction)
    return _op(logits, targets, ignore_index, reduction == "mean")[0]


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
