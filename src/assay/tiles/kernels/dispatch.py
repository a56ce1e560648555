"""Rows of tokens to their experts and back, by the places that a route has (topk_route.py). Forward only.

`dispatch`: R[position[t, j]] = X[t]. `combine`: Y[t] = sum over j of weights[t, j] * R[position[t, j]]. Rows
are bf16, fp16 or float32, weights float32; up to 8 experts a token.
"""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl

from assay.tiles.kernel import Cost, Kernel, Unsupported, launches, need_dtype
from assay.tiles.kernels import topk_route
from assay.tiles.kernels.topk_route import DTYPES, MOST_IN_ALL, MOST_K
from assay.tiles.launch import start
from assay.tiles.op import op


@triton.jit
def dispatch_kernel(x, position, out, n, x_step, K: tl.constexpr, COLS: tl.constexpr):
    """Reads a part of a row once and writes it k times."""
    row = tl.program_id(0) // tl.cdiv(n, COLS)
    column = (tl.program_id(0) % tl.cdiv(n, COLS)) * COLS + tl.arange(0, COLS)
    values = tl.load(x + row.to(tl.int64) * x_step + column, column < n)
    for j in tl.static_range(K):
        at = tl.load(position + row * K + j).to(tl.int64)
        tl.store(out + at * n + column, values, column < n)


@triton.jit
def combine_kernel(rows, position, weights, out, n, rows_step, K: tl.constexpr, COLS: tl.constexpr):
    row = tl.program_id(0) // tl.cdiv(n, COLS)
    column = (tl.program_id(0) % tl.cdiv(n, COLS)) * COLS + tl.arange(0, COLS)
    total = tl.zeros([COLS], tl.float32)
    for j in tl.static_range(K):
        at = tl.load(position + row * K + j).to(tl.int64)
        values = tl.load(rows + at * rows_step + column, column < n).to(tl.float32)
        total += tl.load(weights + row * K + j) * values
    tl.store(out + row.to(tl.int64) * n + column, total, column < n)


def dispatch_reference(x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    out = x.new_empty(position.numel(), x.shape[1])
    out[position.flatten().long()] = x.repeat_interleave(position.shape[1], 0)
    return out


def combine_reference(rows: torch.Tensor, position: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return (rows.float()[position.long()] * weights[:, :, None]).sum(1).to(rows.dtype)


def _columns(n: int) -> int:
    """Of one program: two vectors of 16 bytes for each of its threads."""
    return min(triton.next_power_of_2(n), 2048)


def _dense_rows(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.stride(1) == 1 else tensor.contiguous()


@op("dispatch")
def _dispatch_op(x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    out = _dispatch_shape(x, position)
    if out.numel() == 0:
        return out
    x, position = _dense_rows(x), position.contiguous()
    tokens, n = x.shape
    cols = _columns(n)
    grid = (tokens * triton.cdiv(n, cols),)
    arguments = (x, position, out, n, x.stride(0))
    start(dispatch_kernel, grid, arguments, x, K=position.shape[1], COLS=cols, num_warps=4)
    return out


@_dispatch_op.register_fake
def _dispatch_shape(x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    return x.new_empty((position.shape[0] * position.shape[1], x.shape[1]))


@op("combine")
def _combine_op(rows: torch.Tensor, position: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    out = _combine_shape(rows, position, weights)
    if out.numel() == 0:
        return out
    rows, position, weights = _dense_rows(rows), position.contiguous(), weights.contiguous()
    tokens, n = out.shape
    cols = _columns(n)
    grid = (tokens * triton.cdiv(n, cols),)
    arguments = (rows, position, weights, out, n, rows.stride(0))
    start(combine_kernel, grid, arguments, rows, K=position.shape[1], COLS=cols, num_warps=4)
    return out


@_combine_op.register_fake
def _combine_shape(rows: torch.Tensor, position: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return rows.new_empty((position.shape[0], rows.shape[1]))


def dispatch(x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """Each row of x (tokens, n) k times, sorted by expert; `position` must be a route's, unchecked."""
    _check_rows(x, position)
    if x.shape[0] != position.shape[0]:
        raise Unsupported(f"{x.shape[0]} rows, but positions of {position.shape[0]} tokens")
    return _dispatch_op(x, position) if launches(x, position) else dispatch_reference(x, position)


def combine(rows: torch.Tensor, position: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The weighted sum of each token's k rows; `position` must be a route's, unchecked."""
    _check_rows(rows, position)
    need_dtype(weights, of=(torch.float32,))
    if weights.shape != position.shape:
        raise Unsupported(f"shapes differ: weights {tuple(weights.shape)}, positions {tuple(position.shape)}")
    if rows.shape[0] != position.numel():
        raise Unsupported(f"{rows.shape[0]} rows, but {position.numel()} positions")
    made = _combine_op if launches(rows, position, weights) else combine_reference
    return made(rows, position, weights)


def _check_rows(rows: torch.Tensor, position: torch.Tensor) -> None:
    need_dtype(rows, of=DTYPES)
    need_dtype(position, of=(torch.int32,))
    if rows.dim() != 2 or rows.shape[1] > MOST_IN_ALL:
        raise Unsupported(f"rows of shape {tuple(rows.shape)}: give (rows, n), n up to 2^30")
    if position.dim() != 2 or not 0 < position.shape[1] <= MOST_K or position.numel() > MOST_IN_ALL:
        shape = tuple(position.shape)
        raise Unsupported(
            f"positions of shape {shape}: give (tokens, k), k from 1 to {MOST_K}, up to 2^30 in all"
        )


def _inputs_with_rows(
    *, n: int, is_back: bool, dtype: torch.dtype = torch.bfloat16, device: str = "cuda", **sizes: int
) -> tuple[torch.Tensor, ...]:
    route = topk_route.topk_route(*topk_route.inputs(**sizes, dtype=dtype, device=device))
    tokens, k = route.position.shape
    rows = torch.randn(tokens * k if is_back else tokens, n, device=device).to(dtype)
    return (rows, route.position, route.weights) if is_back else (rows, route.position)


def _cost_of_rows(
    *, tokens: int, experts: int, k: int, n: int, dtype: torch.dtype = torch.bfloat16, is_back: bool
) -> Cost:
    """One row and its k copies, and the positions; on the way back the weights too."""
    size_bytes = tokens * (k + 1) * n * dtype.itemsize + (8 if is_back else 4) * tokens * k
    return Cost(size_bytes=size_bytes, flops=2 * tokens * k * n if is_back else 0)


ROW_CASES = (
    {"tokens": 9, "experts": 4, "k": 2, "n": 64},
    {"tokens": 5, "experts": 8, "k": 3, "n": 1100},
    {"tokens": 70, "experts": 5, "k": 1, "n": 33},
)
ROW_SIZES = (
    {"tokens": 8192, "experts": 8, "k": 2, "n": 4096},
    {"tokens": 8192, "experts": 256, "k": 8, "n": 7168},
    {"tokens": 64, "experts": 256, "k": 8, "n": 7168},
)
ENTRIES = (
    Kernel(
        name="dispatch",
        formula="R[position[t, j]] = X[t]",
        run=dispatch,
        reference=dispatch_reference,
        inputs=partial(_inputs_with_rows, is_back=False),
        cases=ROW_CASES,
        sizes=ROW_SIZES,
        cost=partial(_cost_of_rows, is_back=False),
    ),
    Kernel(
        name="combine",
        formula="Y[t] = sum over j of weights[t, j] * R[position[t, j]]",
        run=combine,
        reference=combine_reference,
        inputs=partial(_inputs_with_rows, is_back=True),
        cases=ROW_CASES,
        sizes=ROW_SIZES,
        cost=partial(_cost_of_rows, is_back=True),
    ),
)
