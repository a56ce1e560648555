"""Product and attention in plain Triton, for GPUs that are no Hopper: no copies by descriptor, no
specialised warps, and gradients are left to torch.
"""

from __future__ import annotations

import functools
import math
import warnings

import torch
import triton
import triton.language as tl

from assay.tiles.kernel import INTERPRETED
from assay.tiles.launch import start
from assay.tiles.op import Op, op

GEMM_TILE = {"BM": 128, "BN": 128, "BK": 32, "GROUP": 8, "num_warps": 8, "num_stages": 3}
ATTENTION_TILE = {"BM": 128, "BN": 64, "num_warps": 8, "num_stages": 2}


def told(name: str, kernel: Op, device: torch.device) -> Op:
    """The kernel, after saying so."""
    if not torch.compiler.is_compiling():
        say_so(name, device)
    return kernel


@functools.cache
def say_so(name: str, device: torch.device) -> None:
    """Once for each function and device."""
    where = "the interpreter" if INTERPRETED else torch.cuda.get_device_name(device)
    warnings.warn(f"assay.tiles.{name} runs as plain Triton on {where}: it is made for Hopper", stacklevel=4)


@triton.jit
def gemm_kernel(
    a, b, c, bias, residual, M, N, K, a_row, a_step, b_step, b_column,
    ACTIVATION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """A tile of the result; bias and residual may be None."""
    t = tl.program_id(0)
    width = GROUP * tl.cdiv(N, BN)
    first = (t // width) * GROUP
    high = min(tl.cdiv(M, BM) - first, GROUP)
    m = (first + (t % width) % high) * BM + tl.arange(0, BM)[:, None]
    n = ((t % width) // high) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros([BM, BN], tl.float32)
    for begin in range(0, K, BK):
        k = begin + tl.arange(0, BK)
        left = tl.load(
            a + m.to(tl.int64) * a_row + k[None, :] * a_step, (m < M) & (k[None, :] < K), other=0.0
        )
        right = tl.load(
            b + k[:, None].to(tl.int64) * b_step + n * b_column, (k[:, None] < K) & (n < N), other=0.0
        )
        acc = tl.dot(left, right, acc)
    if bias is not None:
        acc += tl.load(bias + n, n < N, other=0.0).to(tl.float32)
    if ACTIVATION == "relu":
        acc = tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)
    if ACTIVATION == "silu":
        acc = acc / (1 + tl.exp(-acc))
    if ACTIVATION == "gelu":
        acc = acc / (1 + tl.exp(acc * (-1.5957691216057308 - 0.07135481627260025 * acc * acc)))
    at = m.to(tl.int64) * N + n
    inside = (m < M) & (n < N)
    if residual is not None:
        acc += tl.load(residual + at, inside, other=0.0).to(tl.float32)
    tl.store(c + at, acc, inside)


@op("plain_gemm")
def plain_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: str,
) -> torch.Tensor:
    """Of matrices with any strides; bias and residual dense."""
    (m, k), n = a.shape, b.shape[1]
    c = a.new_empty(m, n)
    tiles = triton.cdiv(m, GEMM_TILE["BM"]) * triton.cdiv(n, GEMM_TILE["BN"])
    arguments = (a, b, c, bias, residual, m, n, k, *a.stride(), *b.stride())
    start(gemm_kernel, (tiles,), arguments, a, ACTIVATION=activation, **GEMM_TILE)
    return c


@plain_gemm.register_fake
def _(a, b, bias, residual, activation):
    return a.new_empty(a.shape[0], b.shape[1])


@triton.jit
def attention_kernel(
    q, k, v, o, S, T, group, scale,
    D: tl.constexpr, COLUMNS: tl.constexpr, IS_CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """A block of queries of one head; scale is in base 2, and the last query sees the last key."""
    head = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.arange(0, COLUMNS)
    at = head * S * D + row[:, None] * D + column[None, :]
    inside = (row[:, None] < S) & (column[None, :] < D)
    queries = tl.load(q + at, inside, other=0.0)
    own = (head // group) * T * D
    acc = tl.zeros([BM, COLUMNS], tl.float32)
    top = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    end = min(T, tl.program_id(0) * BM + BM + T - S) if IS_CAUSAL else T
    for begin in range(0, end, BN):
        key = begin + tl.arange(0, BN)
        place = own + key[:, None] * D + column[None, :]
        there = (key[:, None] < T) & (column[None, :] < D)
        scores = tl.dot(queries, tl.trans(tl.load(k + place, there, other=0.0))) * scale
        seen = key[None, :] < T
        if IS_CAUSAL:
            seen = seen & (key[None, :] <= row[:, None] + T - S)
        scores = tl.where(seen, scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 1), propagate_nan=tl.PropagateNan.ALL)
        level = tl.where(new_top == float("-inf"), 0.0, new_top)
        weights = tl.exp2(scores - level[:, None])
        kept = tl.exp2(top - level)
        values = tl.load(v + place, there, other=0.0)
        acc = tl.dot(weights.to(values.dtype), values, acc * kept[:, None])
        total = total * kept + tl.sum(weights, 1)
        top = new_top
    tl.store(o + at, acc / tl.where(total == 0, 1.0, total)[:, None], inside)


@op("plain_attention")
def plain_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool, scale: float
) -> torch.Tensor:
    """Of contiguous tensors (batch, heads, length, D), any D."""
    o = torch.empty_like(q)
    batch, heads, s, d = q.shape
    grid = triton.cdiv(s, ATTENTION_TILE["BM"]), batch * heads
    arguments = (q, k, v, o, s, k.shape[2], heads // k.shape[1], scale * math.log2(math.e))
    columns = max(triton.next_power_of_2(d), 16)
    start(attention_kernel, grid, arguments, q, D=d, COLUMNS=columns, IS_CAUSAL=is_causal, **ATTENTION_TILE)
    return o


@plain_attention.register_fake
def _(q, k, v, is_causal, scale):
    return torch.empty_like(q)
