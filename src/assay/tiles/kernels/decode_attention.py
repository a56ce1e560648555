"""O = softmax(scale * q K^T) V for one new query of each sequence, against keys and values kept in pages.

q and O are (batch, heads, D), the caches (pages, page_size, kv_heads, D). Key t of sequence b lies in page
page_table[b, t // page_size] at t % page_size; the first lengths[b] keys are seen, and what lies after them
is never read: neither its pages nor its part of the table. A sequence without keys gets zeros.

A program takes all query heads of one KV head (at least 16 rows, so that tensor cores can be used) and an
equal share of one sequence's keys; it leaves its largest score m, its sum l = sum 2^(s - m) and its output
o = sum 2^(s - m) v in float32, the scores in powers of two. A second kernel adds the shares up:
O = (sum 2^(m - M) o) / (sum 2^(m - M) l) with M the largest m. Where there are sequences and heads enough
there is one share, and no second kernel.

Forward only: there are no gradients. Not covered: more than one new query of a sequence (see
varlen_attention), windows, biases, caches in another type than the queries, head sizes other than 64, 128
and 256. Page numbers are not checked on a GPU; lengths beyond the table end with it.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import triton
import triton.language as tl

from assay.tiles.kernel import MOST_ELEMENTS, Cost, Kernel, Unsupported, launches, need_dtype
from assay.tiles.launch import multiprocessors, start
from assay.tiles.op import op
from assay.tiles.rounding import rounded

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
HEAD_SIZES = (64, 128, 256)
STEP_BYTES = 16_384
"""Keys of one step, and as much of values."""
STAGES = 5
"""Two for the page table, two to have two steps of keys and values on their way."""
PROGRAMS_AT_ONCE = 2
"""On one multiprocessor."""
MOST_SHARES = 128
MOST_ROWS = 64
HOPPER_MULTIPROCESSORS = 132


@triton.jit
def decode_attention_kernel(
    q, k, v, table, lengths, out, state, heads, kv_heads, max_pages, scale,
    q_seq, q_head, k_page, k_slot, k_head, v_page, v_slot, v_head,
    IS_WHOLE: tl.constexpr, PAGE: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    group = heads // kv_heads
    parts = tl.cdiv(group, ROWS)
    seq = (tl.program_id(0) // (parts * kv_heads)).to(tl.int64)
    kv = (tl.program_id(0) // parts % kv_heads).to(tl.int64)
    member = tl.program_id(0) % parts * ROWS + tl.arange(0, ROWS)
    is_head = (member < group)[:, None]
    length = tl.maximum(tl.minimum(tl.load(lengths + seq), max_pages * PAGE), 0)
    share = tl.cdiv(tl.cdiv(length, KEYS), tl.num_programs(1)) * KEYS
    begin = tl.minimum(tl.program_id(1) * share, length)
    end = tl.minimum(begin + share, length)

    column = tl.arange(0, D)[None, :]
    head = (kv * group + member)[:, None]
    queries = tl.load(q + seq * q_seq + head * q_head + column, is_head, other=0.0)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, D], tl.float32)
    for first in range(begin, end, KEYS):
        key = first + tl.arange(0, KEYS)
        inside = key < end
        page = tl.load(table + seq * max_pages + key // PAGE, inside, other=0).to(tl.int64)
        slot = (key % PAGE).to(tl.int64)
        k_at = (page * k_page + slot * k_slot)[:, None] + column
        v_at = (page * v_page + slot * v_slot)[:, None] + column
        keys = tl.load(k + kv * k_head + k_at, inside[:, None], other=0.0)
        s = tl.dot(queries, keys.T, input_precision="ieee") * scale
        s = tl.where(inside[None, :], s, float("-inf"))
        higher = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - higher[:, None])
        less = tl.exp2(top - higher)
        values = tl.load(v + kv * v_head + v_at, inside[:, None], other=0.0)
        acc = tl.dot(p.to(values.dtype), values, acc * less[:, None], input_precision="ieee")
        total = total * less + tl.sum(p, 1)
        top = higher

    row = (seq * heads + kv * group + member) * tl.num_programs(1) + tl.program_id(1)
    if IS_WHOLE:
        acc = acc / tl.where(total > 0, total, 1.0)[:, None]
    else:
        tl.store(state + 2 * row, top, member < group)
        tl.store(state + 2 * row + 1, total, member < group)
    tl.store(out + row[:, None] * D + column, acc, is_head)


@triton.jit
def combine_kernel(partial, state, out, shares, D: tl.constexpr, SHARES: tl.constexpr):
    """One row of the output from all its shares; those without keys weigh nothing."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, D)
    top = float("-inf")
    total = 0.0
    acc = tl.zeros([D], tl.float32)
    for first in range(0, shares, SHARES):
        share = first + tl.arange(0, SHARES)
        inside = share < shares
        at = row * shares + share
        m = tl.load(state + 2 * at, inside, other=float("-inf"))
        sums = tl.load(state + 2 * at + 1, inside, other=0.0)
        outs = tl.load(partial + at[:, None] * D + column[None, :], inside[:, None], other=0.0)
        higher = tl.maximum(top, tl.max(m, 0))
        safe = tl.where(higher == float("-inf"), 0.0, higher)
        weight, less = tl.exp2(m - safe), tl.exp2(top - safe)
        total = total * less + tl.sum(rounded(weight, sums), 0)
        acc = acc * less + tl.sum(rounded(weight[:, None], outs), 0)
        top = higher
    tl.store(out + row * D + column, acc / tl.where(total > 0, total, 1.0))


def reference(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float | None = None,
) -> torch.Tensor:
    batch, heads, d = q.shape
    page_size, kv_heads = k_cache.shape[1:3]
    keys_seen = lengths.long()[:, None]
    is_used = torch.arange(page_table.shape[1], device=q.device) * page_size < keys_seen
    pages = torch.where(is_used, page_table, 0).long()
    is_seen = torch.arange(page_table.shape[1] * page_size, device=q.device) < keys_seen
    keys, values = (
        # Which refuses pages that are not there, less than zero among them.
        cache.index_select(0, pages.flatten())
        .float()
        .view(batch, -1, kv_heads, d)
        .masked_fill(~is_seen[..., None, None], 0.0)
        for cache in (k_cache, v_cache)
    )
    queries = q.float().view(batch, kv_heads, heads // kv_heads, d)
    scores = torch.einsum("bhgd,bthd->bhgt", queries, keys) * (d**-0.5 if scale is None else scale)
    hidden = ~is_seen[:, None, None]
    # A sequence without keys has no weights: its output is zero.
    weights = scores.masked_fill(hidden, -math.inf).softmax(-1).masked_fill(hidden, 0.0)
    return torch.einsum("bhgt,bthd->bhgd", weights, values).reshape(q.shape).to(q.dtype)


@lru_cache(maxsize=4096)
def shares_of(programs: int, steps: int, at_once: int) -> int:
    """Into how many shares to divide each sequence.

    Args:
        programs: that there are without dividing.
        steps: of the longest sequence.
        at_once: programs that run beside each other.
    """

    def takes_steps(shares: int) -> int:
        """One more to start a program, two to add the shares up."""
        rounds = triton.cdiv(programs * shares, at_once)
        return rounds * (triton.cdiv(steps, shares) + 1) + 2 * (shares > 1)

    return min(range(1, min(steps, MOST_SHARES) + 1), key=takes_steps)


@op("decode_attention")
def _decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    table, lengths = table.contiguous(), lengths.contiguous()
    batch, heads, d = q.shape
    page, kv_heads = k.shape[1:3]
    rows = min(max(16, triton.next_power_of_2(heads // kv_heads)), MOST_ROWS)
    keys = STEP_BYTES // (d * q.element_size())
    programs = batch * kv_heads * triton.cdiv(heads // kv_heads, rows)
    processors = multiprocessors(q) if q.is_cuda else HOPPER_MULTIPROCESSORS
    steps = triton.cdiv(table.shape[1] * page, keys)
    shares = shares_of(programs, steps, PROGRAMS_AT_ONCE * processors)
    out = q.new_empty(q.shape)
    partial = out if shares == 1 else q.new_empty(batch, heads, shares, d, dtype=torch.float32)
    state = q.new_empty(batch, heads, shares, 2, dtype=torch.float32)
    strides = *q.stride()[:2], *k.stride()[:3], *v.stride()[:3]
    sizes = heads, kv_heads, table.shape[1], scale * math.log2(math.e)
    start(
        decode_attention_kernel, (programs, shares),
        (q, k, v, table, lengths, partial, state, *sizes, *strides), q,
        IS_WHOLE=shares == 1, PAGE=page, D=d, ROWS=rows, KEYS=keys, num_warps=4, num_stages=STAGES,
    )  # fmt: skip
    if shares > 1:
        together = min(triton.next_power_of_2(shares), 8192 // d)
        arguments = (partial, state, out, shares)
        start(combine_kernel, (batch * heads,), arguments, q, D=d, SHARES=together, num_warps=4)
    return out


@_decode.register_fake
def _(q, k, v, table, lengths, scale):
    return q.new_empty(q.shape)


def decode_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float | None = None,
) -> torch.Tensor:
    """Args:
    q: (batch, heads, D).
    k_cache, v_cache: (pages, page_size, kv_heads, D), each with strides of its own.
    page_table: (batch, max_pages), int32.
    lengths: (batch,), int32: keys of each sequence, that of the new token among them.
    scale: D**-0.5 unless given.
    """
    _check(q, k_cache, v_cache, page_table, lengths)
    if 0 in (*q.shape, *k_cache.shape, *page_table.shape):
        return torch.zeros_like(q)
    if not launches(q, k_cache, v_cache, page_table, lengths):
        return reference(q, k_cache, v_cache, page_table, lengths, scale)
    if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k_cache, v_cache)):
        raise Unsupported("decode_attention has no gradients: call it under torch.no_grad()")
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if q.dtype == torch.bfloat16 and not q.is_cuda:
        # The interpreter multiplies the bits of bfloat16 instead of its values.
        wide = (x.float() for x in (q, k_cache, v_cache))
        return _decode(*wide, page_table, lengths, scale).bfloat16()
    return _decode(q, k_cache, v_cache, page_table, lengths, scale)


def _check(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor
) -> None:
    need_dtype(q, k, v, of=DTYPES)
    need_dtype(table, lengths, of=(torch.int32,))
    if not (q.dim() == 3 and k.dim() == 4 and k.shape == v.shape and q.shape[-1] == k.shape[-1]):
        shapes = ", ".join(str(list(x.shape)) for x in (q, k, v))
        raise Unsupported(f"{shapes}: want (batch, heads, D) and twice (pages, page_size, kv_heads, D)")
    if table.dim() != 2 or not len(q) == len(table) == lengths.numel() or lengths.dim() != 1:
        shapes = f"{list(table.shape)}, {list(lengths.shape)}"
        raise Unsupported(f"{shapes} for {len(q)} queries: want (batch, max_pages) and (batch,)")
    page_size, kv_heads, d = k.shape[1:]
    if d not in HEAD_SIZES:
        raise Unsupported(f"heads of {d} are not supported: use 64, 128, 256")
    if kv_heads == 0 or q.shape[1] % kv_heads:
        raise Unsupported(f"{q.shape[1]} heads cannot share {kv_heads}")
    if page_size < 16 or page_size & (page_size - 1):
        raise Unsupported(f"pages of {page_size} keys are not supported: use a power of two from 16 on")
    if max(table.shape[1] * page_size, q.numel()) > MOST_ELEMENTS:
        raise Unsupported("more than 2^31 - 1 keys of a sequence, or elements of the queries: split them")


def _lengths(batch: int, least: int, length: int) -> list[int]:
    """From the shortest to the longest in even steps."""
    return [length - (length - least) * i // max(batch - 1, 1) for i in range(batch)]


def inputs(
    *, batch: int, heads: int, kv_heads: int, d: int, page_size: int, least: int, length: int, device: str
) -> tuple[torch.Tensor, ...]:
    """Pages in any order, as after a while of use."""
    most = triton.cdiv(length, page_size)
    table = torch.randperm(batch * most, device=device).int().view(batch, most)
    q = torch.randn(batch, heads, d, device=device).bfloat16()
    shape = (batch * most, page_size, kv_heads, d)
    k, v = (torch.randn(shape, device=device).bfloat16() for _ in range(2))
    lengths = torch.tensor(_lengths(batch, least, length), dtype=torch.int32, device=device)
    return q, k, v, table, lengths


def cost(*, batch: int, heads: int, kv_heads: int, d: int, page_size: int, least: int, length: int) -> Cost:
    """Each key and value that is seen, once."""
    keys = sum(_lengths(batch, least, length))
    pages = sum(triton.cdiv(n, page_size) for n in _lengths(batch, least, length))
    size_bytes = 4 * d * (keys * kv_heads + batch * heads) + 4 * (pages + batch)
    return Cost(size_bytes=size_bytes, flops=4 * keys * heads * d)


def _sizes(
    batch: int, heads: int, kv_heads: int, d: int, page_size: int, least: int, length: int
) -> dict[str, int]:
    return {
        "batch": batch, "heads": heads, "kv_heads": kv_heads, "d": d, "page_size": page_size,
        "least": least, "length": length,
    }  # fmt: skip


ENTRY = Kernel(
    name="decode_attention",
    formula="softmax(scale * q K^T) V, K and V in pages",
    run=decode_attention,
    reference=reference,
    inputs=inputs,
    cases=(
        _sizes(1, 4, 1, 64, 16, 300, 300),
        _sizes(3, 6, 2, 128, 32, 1, 150),
        _sizes(2, 20, 1, 256, 64, 0, 70),
    ),
    sizes=(
        _sizes(1, 32, 8, 128, 64, 8192, 8192),
        _sizes(1, 32, 8, 128, 64, 131_072, 131_072),
        _sizes(16, 32, 8, 128, 16, 8192, 8192),
        _sizes(64, 32, 8, 128, 64, 128, 8192),
        _sizes(16, 64, 8, 64, 64, 8192, 8192),
        _sizes(16, 16, 1, 256, 64, 8192, 8192),
    ),
    cost=cost,
)
