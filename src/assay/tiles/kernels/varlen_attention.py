"""O = softmax(scale * Q K^T) V for sequences of any lengths, packed one after the other without padding.

Q and O are (total_q, heads, D), K and V (total_k, kv_heads, D); sequence b has the queries from
cu_seqlens_q[b] to cu_seqlens_q[b + 1], and the keys likewise. Causal: the last query of a sequence sees its
last key, query s of S sees keys up to s + T - S of T. A query that sees no key gets zeros, and so do rows
after the last sequence: a batch may be padded at its end.

A program takes a tile of queries of one head and goes over the keys block by block with a running maximum
m and sum l: m' = max(m, max s), l' = l 2^(m - m') + sum 2^(s - m'), O' = O 2^(m - m') + 2^(s - m') V, the
scores in powers of two. Blocks that all its queries see come first and are not masked; those that none of
them sees are not read. Which sequence a tile belongs to is found by counting, so that lengths stay on the
device.

Forward only: there are no gradients. Not covered: windows, biases, dropout, head sizes other than 64, 128
and 256; one query of each sequence is right but slow (see decode_attention). Both cu_seqlens begin with 0
and never fall, which is not checked on a GPU.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from assay.tiles.kernel import (
    Cost,
    Kernel,
    Unsupported,
    launches,
    need_dtype,
    need_few,
    need_scale,
    need_switch,
    needs_gradients,
)
from assay.tiles.launch import start
from assay.tiles.op import op

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
HEAD_SIZES = (64, 128, 256)
MOST_AT_ONCE = 1024
"""Sequences looked at in one step of the search for a tile's own."""
MOST_ROW_STRIDE = 2**22
"""Offsets inside a block are 32 bits wide."""


@triton.jit
def _sequence(cu, batch, tile, ROWS: tl.constexpr, CHUNK: tl.constexpr):
    """Of a tile: sequence b has those from cu[b] // ROWS + b on, a few more than it needs."""
    found = 0
    for first in range(1, batch + 1, CHUNK):
        i = first + tl.arange(0, CHUNK)
        begin = tl.load(cu + i, i <= batch, other=0)
        found += tl.sum(((i <= batch) & (begin // ROWS + i <= tile)).to(tl.int32), 0)
    return found


@triton.jit
def _weights(s, top, scale):
    """Of a block of keys, the new maxima, and what older sums are to be multiplied by."""
    higher = tl.maximum(top, tl.max(s, 1) * scale)
    safe = tl.where(higher == float("-inf"), 0.0, higher)
    return tl.exp2(s * scale - safe[:, None]), higher, tl.exp2(top - safe)


@triton.jit
def varlen_attention_kernel(
    q, k, v, out, cu_q, cu_k, batch, total_q, heads, kv_heads, scale,
    q_row, q_head, k_row, k_head, v_row, v_head,
    IS_CAUSAL: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    head, tile = (tl.program_id(0) % heads).to(tl.int64), tl.program_id(0) // heads
    seq = _sequence(cu_q, batch, tile, ROWS, CHUNK)
    begin_q, begin_k = tl.load(cu_q + seq), tl.load(cu_k + seq)
    queries_here = tl.load(cu_q + seq + 1, seq < batch, other=total_q) - begin_q
    length = tl.load(cu_k + seq + 1, seq < batch, other=begin_k) - begin_k
    # From the end of a sequence: there a causal tile has the most to do.
    start = (tl.cdiv(queries_here, ROWS) - 1 - (tile - begin_q // ROWS - seq)) * ROWS
    if start < 0:
        return

    query, column = start + tl.arange(0, ROWS), tl.arange(0, D)[None, :]
    limit = tl.zeros([ROWS], tl.int32) + length - 1
    common, end = length, length
    if IS_CAUSAL:
        more = length - queries_here
        limit = tl.minimum(limit, query + more)
        common = tl.maximum(tl.minimum(length, start + more + 1), 0)
        end = tl.maximum(tl.minimum(length, start + ROWS + more), 0)
    row = tl.arange(0, ROWS)[:, None]
    q += (begin_q + start).to(tl.int64) * q_row + head * q_head
    queries = tl.load(q + row * q_row + column, query[:, None] < queries_here, other=0.0)
    kv = head // (heads // kv_heads)
    k += begin_k.to(tl.int64) * k_row + kv * k_head
    v += begin_k.to(tl.int64) * v_row + kv * v_head
    acc = tl.zeros([ROWS, D], tl.float32)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    key = tl.arange(0, KEYS)
    for first in range(0, end, KEYS):
        inside = (first + key < length)[:, None]
        keys = tl.load(k + key[:, None] * k_row + column, inside, other=0.0)
        s = tl.dot(queries, keys.T, input_precision="ieee")
        if first + KEYS > common:
            s = tl.where((first + key)[None, :] <= limit[:, None], s, float("-inf"))
        p, top, less = _weights(s, top, scale)
        total = total * less + tl.sum(p, 1)
        values = tl.load(v + key[:, None] * v_row + column, inside, other=0.0)
        acc = tl.dot(p.to(values.dtype), values, acc * less[:, None], input_precision="ieee")
        k += KEYS * k_row
        v += KEYS * v_row
    acc = acc / tl.where(total > 0, total, 1.0)[:, None]
    out += ((begin_q + start).to(tl.int64) * heads + head) * D
    # Said in another way than for the queries, or the compiler keeps that mask in registers all the while.
    tl.store(out + row * (heads * D) + column, acc.to(out.dtype.element_ty), row < queries_here - start)


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    is_causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    ends_q, ends_k = _ends(cu_seqlens_q, len(q)), _ends(cu_seqlens_k, len(k))
    group = q.shape[1] // k.shape[1]
    made = []
    for b in range(len(ends_q) - 1):
        queries = q[ends_q[b] : ends_q[b + 1]].float().transpose(0, 1)
        keys, values = (
            x[ends_k[b] : ends_k[b + 1]].float().transpose(0, 1).repeat_interleave(group, 0) for x in (k, v)
        )
        scores = queries @ keys.mT * scale
        hidden = torch.zeros(scores.shape[1:], dtype=torch.bool, device=q.device)
        if is_causal:
            hidden = ~hidden.logical_not().tril(hidden.shape[1] - hidden.shape[0])
        # A query that sees no key has no weights: its output is zero.
        weights = scores.masked_fill(hidden, -math.inf).softmax(-1).masked_fill(hidden, 0.0)
        made.append((weights @ values).transpose(0, 1).to(q.dtype))
    return torch.cat([*made, torch.zeros_like(q[ends_q[-1] :])])


def _ends(cu_seqlens: torch.Tensor, total: int) -> list[int]:
    ends = cu_seqlens.tolist()
    if ends[0] != 0 or ends[-1] > total or ends != sorted(ends):
        raise Unsupported(f"cu_seqlens of {ends} for {total} rows: want 0, and no number less than the last")
    return ends


def blocks_for(d: int, element_bytes: int, rows_each: float) -> dict[str, int]:
    """Args:
    rows_each: queries of a sequence, on average; where there are few a wide tile is mostly empty.
    """
    if element_bytes == 4:
        return {"ROWS": 32, "KEYS": 32, "num_warps": 4, "num_stages": 2}
    if rows_each <= 64:
        return {"ROWS": 64, "KEYS": 64 if d < 256 else 32, "num_warps": 4, "num_stages": 2}
    return {"ROWS": 128, "KEYS": 128 if d < 256 else 64, "num_warps": 8, "num_stages": 3 if d == 64 else 2}


@op("varlen_attention")
def _varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    is_causal: bool,
    scale: float,
) -> torch.Tensor:
    if not launches(q):  # an operator all the same: what it looks like is known before its ends are read
        return reference(q, k, v, cu_seqlens_q, cu_seqlens_k, is_causal, scale)
    q, k, v = (_even(x) for x in (q, k, v))
    (total_q, heads, d), batch = q.shape, cu_seqlens_q.numel() - 1
    out = q.new_empty(q.shape)
    blocks = blocks_for(d, q.element_size(), total_q / batch)
    tiles = total_q // blocks["ROWS"] + batch + 1
    arguments = (
        q, k, v, out, cu_seqlens_q.contiguous(), cu_seqlens_k.contiguous(),
        batch, total_q, heads, k.shape[1], scale * math.log2(math.e),
        *q.stride()[:2], *k.stride()[:2], *v.stride()[:2],
    )  # fmt: skip
    chunk = min(triton.next_power_of_2(batch), MOST_AT_ONCE)
    grid = (tiles * heads,)
    start(varlen_attention_kernel, grid, arguments, q, IS_CAUSAL=is_causal, D=d, CHUNK=chunk, **blocks)
    return out


@_varlen.register_fake
def _(q, k, v, cu_seqlens_q, cu_seqlens_k, is_causal, scale):
    return q.new_empty(q.shape)


def _even(tensor: torch.Tensor) -> torch.Tensor:
    """A copy where heads have gaps inside, or rows lie too far from each other."""
    is_even = tensor.stride(-1) == 1 and tensor.stride(0) <= MOST_ROW_STRIDE
    return tensor if is_even else tensor.contiguous()


def varlen_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    is_causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """Args:
    q: (total_q, heads, D).
    k, v: (total_k, kv_heads, D), each with strides of its own.
    cu_seqlens_q, cu_seqlens_k: (batch + 1,), int32: where each sequence begins, and where the last ends.
    scale: D**-0.5 unless given.
    """
    _check(q, k, v, cu_seqlens_q, cu_seqlens_k)
    need_switch(is_causal)
    scale = need_scale(scale, q.shape[-1])
    if 0 in (*q.shape, *k.shape) or cu_seqlens_q.numel() == 1:
        return torch.zeros_like(q)
    is_recorded = needs_gradients(q, k, v)
    if not launches(q, k, v, cu_seqlens_q, cu_seqlens_k):
        answer = reference if is_recorded else _varlen
        return answer(q, k, v, cu_seqlens_q, cu_seqlens_k, is_causal, scale)
    if is_recorded:
        raise Unsupported("varlen_attention has no gradients: call it under torch.no_grad()")
    if q.dtype == torch.bfloat16 and not q.is_cuda:
        # The interpreter multiplies the bits of bfloat16 instead of its values.
        wide = (x.float() for x in (q, k, v))
        return _varlen(*wide, cu_seqlens_q, cu_seqlens_k, is_causal, scale).bfloat16()
    return _varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, is_causal, scale)


def _check(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
) -> None:
    need_dtype(q, k, v, of=DTYPES)
    need_dtype(cu_seqlens_q, cu_seqlens_k, of=(torch.int32,))
    need_few(q, k, v)
    if not (q.dim() == k.dim() == 3 and k.shape == v.shape and q.shape[-1] == k.shape[-1]):
        shapes = ", ".join(str(list(x.shape)) for x in (q, k, v))
        raise Unsupported(f"{shapes}: want (total_q, heads, D) and twice (total_k, kv_heads, D)")
    if cu_seqlens_q.dim() != 1 or cu_seqlens_q.shape != cu_seqlens_k.shape or cu_seqlens_q.numel() == 0:
        shapes = f"{list(cu_seqlens_q.shape)}, {list(cu_seqlens_k.shape)}"
        raise Unsupported(f"cu_seqlens of {shapes}: want (batch + 1,) twice")
    if q.shape[-1] not in HEAD_SIZES:
        raise Unsupported(f"heads of {q.shape[-1]} are not supported: use 64, 128, 256")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise Unsupported(f"{q.shape[1]} heads cannot share {k.shape[1]}")


def _lengths(batch: int, least: int, length: int) -> list[int]:
    """From the longest to the shortest in even steps."""
    return [length - (length - least) * i // max(batch - 1, 1) for i in range(batch)]


def inputs(
    *, batch: int, heads: int, kv_heads: int, d: int, least: int, length: int, more: int, is_causal: bool,
    device: str,
) -> tuple[torch.Tensor | bool, ...]:  # fmt: skip
    """Args:
    more: keys that each sequence has before those of its queries.
    """
    lengths = _lengths(batch, least, length)
    cu_q = torch.tensor([0, *lengths], device=device).cumsum(0).int()
    cu_k = torch.tensor([0, *(n + more for n in lengths)], device=device).cumsum(0).int()
    q = torch.randn(sum(lengths), heads, d, device=device).bfloat16()
    total_k = sum(lengths) + batch * more
    k, v = (torch.randn(total_k, kv_heads, d, device=device).bfloat16() for _ in range(2))
    return q, k, v, cu_q, cu_k, is_causal


def cost(
    *, batch: int, heads: int, kv_heads: int, d: int, least: int, length: int, more: int, is_causal: bool
) -> Cost:
    """A causal problem has the products of those pairs that see each other."""
    lengths = _lengths(batch, least, length)
    pairs = sum(n * (n + more) - (n * (n - 1) // 2 if is_causal else 0) for n in lengths)
    total_q = sum(lengths)
    size_bytes = 4 * d * (total_q * heads + (total_q + batch * more) * kv_heads) + 8 * (batch + 1)
    return Cost(size_bytes=size_bytes, flops=4 * pairs * heads * d)


def _sizes(
    batch: int, heads: int, kv_heads: int, d: int, least: int, length: int, more: int, is_causal: bool
) -> dict[str, int | bool]:
    return {
        "batch": batch, "heads": heads, "kv_heads": kv_heads, "d": d, "least": least, "length": length,
        "more": more, "is_causal": is_causal,
    }  # fmt: skip


ENTRY = Kernel(
    name="varlen_attention",
    formula="softmax(scale * Q K^T) V for packed sequences",
    run=varlen_attention,
    reference=reference,
    inputs=inputs,
    cases=(
        _sizes(3, 4, 2, 64, 1, 75, 0, True),
        _sizes(2, 2, 1, 128, 20, 140, 77, True),
        _sizes(3, 2, 2, 256, 0, 70, 33, False),
    ),
    sizes=(
        _sizes(8, 32, 8, 128, 256, 4096, 0, True),
        _sizes(8, 32, 8, 128, 256, 4096, 0, False),
        _sizes(1, 32, 8, 128, 16_384, 16_384, 0, True),
        _sizes(64, 32, 8, 128, 16, 512, 0, True),
        _sizes(8, 16, 16, 64, 256, 4096, 0, True),
        _sizes(8, 16, 4, 256, 256, 4096, 0, True),
        _sizes(8, 32, 8, 128, 128, 512, 8192, True),
    ),
    cost=cost,
)
