"""Causal linear attention: scores are products of features, so that all the past is one matrix.

    o_t = sum_{s <= t} f(q_t).f(k_s) v_s, divided by sum_{s <= t} f(q_t).f(k_s) + 1e-6 where `normalise`

`based`: f(x) = (1, x / D^(1/4), x x^T / sqrt(2 D)), so that f(q).f(k) = 1 + a + a^2 / 2 with a = q.k /
sqrt(D): the first terms of exp(a); D is 16, which makes 1 + 16 + 256 features. `hedgehog`: f(x) =
(softmax(x), softmax(-x)), which makes 2 D features; a learned product before it is the caller's.

Q and K are (batch, heads, T, D), V is (batch, heads, T, DV), in any strides. T is cut into segments, as many
as fill the GPU, and each of these into chunks. One kernel walks over a part of a segment and writes what it
adds to the state (features x values, float32); one adds up what comes before its segment, walks from there
and writes o: a masked product within the chunk, and the product with the state for all before it.
One segment needs the last only. `based` on Hopper, if T is not long: based_hopper.py.

Features and weights are rounded to the inputs' type for the tensor cores. `based` squares what it is given:
in float16, entries of q and k beyond 255 overflow.

Not covered: backward (forward only), first and last states for decoding, fewer key heads than query heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.tiles.kernel import Cost, Kernel, Unsupported, launches, need_dtype, need_few
from assay.tiles.kernels.based_hopper import based_on_hopper, covers
from assay.tiles.launch import runs_on_hopper, start
from assay.tiles.op import op

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
KEYS = 64
"""Of a block within a chunk: the more, the more registers its scores and features take."""
LEAST_ROWS = 256
"""Of a segment: a shorter one would spend more on its state than on its rows."""
BASED_D = 16
EPSILON = 1e-6
WANTED_WARPS = 8 * 132
"""All that the registers of an H200 hold: a thread takes every register it can have."""
MOST_PARTS = 4
"""Of a segment: each is read again by all segments behind it."""


@triton.jit
def _rows(start, first, stride, T, CHUNK: tl.constexpr, WIDTH: tl.constexpr):
    """A chunk of rows, with zeros past the end."""
    row = first + tl.arange(0, CHUNK)
    places = start + row[:, None].to(tl.int64) * stride + tl.arange(0, WIDTH)[None, :]
    return tl.load(places, mask=row[:, None] < T, other=0.0)


@triton.jit
def _head(tensor, pair, heads, strides):
    """Where one head of one batch entry begins."""
    return tensor + (pair // heads).to(tl.int64) * strides[0] + (pair % heads).to(tl.int64) * strides[1]


@triton.jit
def _features(x, MAP: tl.constexpr):
    """In two halves, without their factors, and without the constant and the x of "based"."""
    CHUNK: tl.constexpr = x.shape[0]
    D: tl.constexpr = x.shape[1]
    if MAP == "based":
        even, odd = tl.split(tl.reshape(x, (CHUNK, D // 2, 2)))
        one = tl.reshape(even[:, :, None] * x[:, None, :], (CHUNK, D * D // 2))
        two = tl.reshape(odd[:, :, None] * x[:, None, :], (CHUNK, D * D // 2))
    else:
        wide = x.to(tl.float32)
        up = tl.exp(wide - tl.max(wide, 1)[:, None])
        down = tl.exp(tl.min(wide, 1)[:, None] - wide)
        one = (up * (1.0 / tl.sum(up, 1))[:, None]).to(x.dtype)
        two = (down * (1.0 / tl.sum(down, 1))[:, None]).to(x.dtype)
    return one, two


@triton.jit
def _nothing(MAP: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr, BV: tl.constexpr):
    """Before the first key: both halves x values, values x keys, values; then two sums for the weights."""
    if MAP == "based":
        norm = tl.zeros([D, D], tl.float32)
    else:
        norm = tl.zeros([D], tl.float32)
    half = tl.zeros([HALF, BV], tl.float32)
    return (
        half,
        half,
        tl.zeros([BV, D], tl.float32),
        tl.zeros([BV], tl.float32),
        norm,
        tl.zeros([D], tl.float32),
    )


@triton.jit
def _grown(state, key, key_one, key_two, value, MAP: tl.constexpr):
    """The state with a chunk's keys and values, but for the sums for the weights."""
    one, two, first_order, constant, norm_one, norm_two = state
    one = tl.dot(tl.trans(key_one), value, one, input_precision="tf32x3")
    two = tl.dot(tl.trans(key_two), value, two, input_precision="tf32x3")
    if MAP == "based":
        first_order = tl.dot(tl.trans(value), key, first_order, input_precision="tf32x3")
        constant += tl.sum(value.to(tl.float32), 0)
    return one, two, first_order, constant, norm_one, norm_two


@triton.jit
def _counted(state, key, key_one, key_two, MAP: tl.constexpr):
    """The state with the sums for the weights; apart, for the registers are free sooner if it comes early."""
    one, two, first_order, constant, norm_one, norm_two = state
    if MAP == "based":
        norm_one = tl.dot(tl.trans(key), key, norm_one, input_precision="tf32x3")
        norm_two += tl.sum(key.to(tl.float32), 0)
    else:
        norm_one += tl.sum(key_one.to(tl.float32), 0)
        norm_two += tl.sum(key_two.to(tl.float32), 0)
    return one, two, first_order, constant, norm_one, norm_two


@triton.jit
def _places(held, slot, column, DV, MAP: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr, BV: tl.constexpr):
    """Where each part of a state lies."""
    half, d, v = tl.arange(0, HALF), tl.arange(0, D), column + tl.arange(0, BV)
    held += slot.to(tl.int64) * ((2 * HALF + D + 1) * DV + (D + 1) * D)
    one = held + half[:, None] * DV + v[None, :]
    linear = held + 2 * HALF * DV
    norms = linear + (D + 1) * DV
    if MAP == "based":
        norm = norms + D + d[:, None] * D + d[None, :]
    else:
        norm = norms + D + d
    return one, one + HALF * DV, linear + d[None, :] * DV + v[:, None], linear + D * DV + v, norm, norms + d


@triton.jit
def _segment_kernel(
    k, v, held, T, heads, slots, chunks, parts, each, k_strides, v_strides, DV,
    MAP: tl.constexpr, NORMALISE: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr, BV: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """What one part of a segment adds to the state."""
    pair, slot, column = tl.program_id(0), tl.program_id(1), tl.program_id(2) * BV
    k = _head(k, pair, heads, k_strides)
    v = _head(v, pair, heads, v_strides) + column
    state = _nothing(MAP, D, HALF, BV)
    segment = slot // parts
    begin = segment * chunks + slot % parts * each
    for chunk in range(begin, tl.minimum(begin + each, (segment + 1) * chunks)):
        key = _rows(k, chunk * CHUNK, k_strides[2], T, CHUNK, D)
        key_one, key_two = _features(key, MAP)
        if NORMALISE:
            state = _counted(state, key, key_one, key_two, MAP)
        value = _rows(v, chunk * CHUNK, v_strides[2], T, CHUNK, BV)
        state = _grown(state, key, key_one, key_two, value, MAP)
    places = _places(held, pair * slots + slot, column, DV, MAP, D, HALF, BV)
    for part in tl.static_range(6):
        tl.store(places[part], state[part])


@triton.jit
def _within(query, key, query_one, query_two, key_one, key_two, ahead, MAP: tl.constexpr):
    """The scores of a chunk's queries and a block of its keys, which begins so far into the chunk."""
    if MAP == "based":
        a = tl.dot(query, tl.trans(key), input_precision="tf32x3") * 0.25
        scores = 1.0 + a + 0.5 * a * a
    else:
        scores = tl.dot(query_one, tl.trans(key_one), input_precision="tf32x3")
        scores = tl.dot(query_two, tl.trans(key_two), scores, input_precision="tf32x3")
    row, column = tl.arange(0, query.shape[0]), ahead + tl.arange(0, key.shape[0])
    return tl.where(row[:, None] >= column[None, :], scores, 0.0)


@triton.jit
def _past(state, query, query_one, query_two, first, MAP: tl.constexpr, UNIT: tl.constexpr):
    """What a chunk's queries get from all keys before it, and the sum of their scores."""
    one, two, first_order, constant, norm_one, norm_two = state
    # The mean over the keys seen does not overflow in float16, however long the input.
    seen = tl.maximum(first, 1).to(tl.float32)
    less = UNIT / seen
    one, two = (one * less).to(query.dtype), (two * less).to(query.dtype)
    if MAP == "based":
        keys = tl.trans((first_order * (8.0 * less)).to(query.dtype))
        got = tl.dot(query, keys, input_precision="tf32x3") + constant[None, :] * (32.0 * less)
        got = tl.dot(query_one, one, got, input_precision="tf32x3")
        got = tl.dot(query_two, two, got, input_precision="tf32x3") * (seen * 0.03125)
        # q.(sum of k k^T).q takes 16 x 16 sums in place of 256 features.
        squares = tl.dot(query, (norm_one * less).to(query.dtype), input_precision="tf32x3")
        terms = squares * (0.03125 * seen) + 0.25 * norm_two[None, :]
        weight = tl.sum(terms * query.to(tl.float32), 1) + first
    else:
        weight = tl.sum(query_one.to(tl.float32) * norm_one[None, :], 1)
        weight += tl.sum(query_two.to(tl.float32) * norm_two[None, :], 1)
        got = tl.dot(query_one, one, input_precision="tf32x3")
        got = tl.dot(query_two, two, got, input_precision="tf32x3") * (seen / UNIT)
    return got, weight


@triton.jit
def _output_kernel(
    q, k, v, out, held, T, heads, slots, chunks, parts, q_strides, k_strides, v_strides, DV,
    MAP: tl.constexpr, NORMALISE: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr, BV: tl.constexpr,
    CHUNK: tl.constexpr, BLOCK: tl.constexpr, UNIT: tl.constexpr, EPSILON: tl.constexpr,
    HAS_PAST: tl.constexpr,
):  # fmt: skip
    """The outputs of one segment, from the state before it."""
    pair, segment, column = tl.program_id(0), tl.program_id(1), tl.program_id(2) * BV
    q = _head(q, pair, heads, q_strides)
    k = _head(k, pair, heads, k_strides)
    v = _head(v, pair, heads, v_strides) + column
    out += pair.to(tl.int64) * T * DV + column
    state = _nothing(MAP, D, HALF, BV)
    if HAS_PAST:
        for before in tl.range(segment * parts, num_stages=1):
            p = _places(held, pair * slots + before, column, DV, MAP, D, HALF, BV)
            state = (
                state[0] + tl.load(p[0]), state[1] + tl.load(p[1]), state[2] + tl.load(p[2]),
                state[3] + tl.load(p[3]), state[4] + tl.load(p[4]), state[5] + tl.load(p[5]),
            )  # fmt: skip
    for chunk in range(segment * chunks, tl.minimum((segment + 1) * chunks, tl.cdiv(T, CHUNK))):
        first = chunk * CHUNK
        query = _rows(q, first, q_strides[2], T, CHUNK, D)
        query_one, query_two = _features(query, MAP)
        got, weight = _past(state, query, query_one, query_two, first, MAP, UNIT)
        for ahead in tl.static_range(0, CHUNK, BLOCK):
            key = _rows(k, first + ahead, k_strides[2], T, BLOCK, D)
            key_one, key_two = _features(key, MAP)
            if NORMALISE:
                state = _counted(state, key, key_one, key_two, MAP)
            value = _rows(v, first + ahead, v_strides[2], T, BLOCK, BV)
            state = _grown(state, key, key_one, key_two, value, MAP)
            scores = _within(query, key, query_one, query_two, key_one, key_two, ahead, MAP)
            got = tl.dot(scores.to(value.dtype), value, got, input_precision="tf32x3")
            weight += tl.sum(scores, 1)
        if NORMALISE:
            got = got * (1.0 / (weight + EPSILON))[:, None]
        row = first + tl.arange(0, CHUNK)
        places = out + row[:, None].to(tl.int64) * DV + tl.arange(0, BV)[None, :]
        tl.store(places, got.to(out.dtype.element_ty), mask=row[:, None] < T)


def _features_of(x: Tensor, feature_map: str) -> Tensor:
    if feature_map == "hedgehog":
        return torch.cat([x.softmax(-1), (-x).softmax(-1)], -1)
    d = x.shape[-1]
    pairs = (x[..., :, None] * x[..., None, :]).flatten(-2) / math.sqrt(2 * d)
    return torch.cat([torch.ones_like(x[..., :1]), x / d**0.25, pairs], -1)


def _reference(q: Tensor, k: Tensor, v: Tensor, normalise: bool, feature_map: str) -> Tensor:
    scores = _features_of(q.float(), feature_map) @ _features_of(k.float(), feature_map).transpose(-1, -2)
    scores = scores.tril()
    if normalise:
        scores = scores / (scores.sum(-1, keepdim=True) + EPSILON)
    return (scores @ v.float()).to(q.dtype)


def reference_based(q: Tensor, k: Tensor, v: Tensor, normalise: bool = True) -> Tensor:
    return _reference(q, k, v, normalise, "based")


def reference_hedgehog(q: Tensor, k: Tensor, v: Tensor, normalise: bool = True) -> Tensor:
    return _reference(q, k, v, normalise, "hedgehog")


def _blocks(feature_map: str, d: int, dv: int) -> dict[str, int]:
    """Sizes with which nothing is spilled."""
    if feature_map == "based":
        return {"HALF": d * d // 2, "CHUNK": 128, "BV": min(dv, 64), "num_warps": 8, "num_stages": 3}
    return {"HALF": d, "CHUNK": 64, "BV": min(dv, 64 if d < 128 else 32), "num_warps": 4, "num_stages": 2}


def _segments(length: int, chunk: int, wanted: int) -> tuple[int, int]:
    """How many, no more than wanted, and chunks in each."""
    chunks = triton.cdiv(length, chunk)
    each = triton.cdiv(chunks, max(1, min(wanted, length // LEAST_ROWS)))
    return triton.cdiv(chunks, each), each


@op("linear_attention")
def linear_attention(q: Tensor, k: Tensor, v: Tensor, normalise: bool, feature_map: str) -> Tensor:
    """Rows must be dense; `based` and `hedgehog` see to it."""
    if feature_map == "based" and runs_on_hopper(q, k, v) and covers(q, v):
        return based_on_hopper(q, k, v, normalise)
    batch, heads, length, d = q.shape
    dv, pairs = v.shape[3], batch * heads
    out = q.new_empty(batch, heads, length, dv)
    if not out.numel():
        return out
    sizes = {"MAP": feature_map, "NORMALISE": normalise, "D": d, **_blocks(feature_map, d, dv)}
    columns = dv // sizes["BV"]
    wanted = WANTED_WARPS // sizes["num_warps"] // (pairs * columns)
    segments, chunks = _segments(length, sizes["CHUNK"], wanted)
    # Nobody asks for what the last segment adds: the others are cut further, so that the GPU is full.
    parts = max(1, min(wanted // max(segments - 1, 1), chunks, MOST_PARTS))
    slots = (segments - 1) * parts
    width = (2 * sizes["HALF"] + d + 1) * dv + (d + 1) * d
    held = q.new_empty(pairs, slots, width, dtype=torch.float32)
    strides = [x.stride()[:3] for x in (q, k, v)]
    where = (length, heads, slots, chunks, parts)
    if slots:
        arguments = (k, v, held, *where, triton.cdiv(chunks, parts), *strides[1:], dv)
        start(_segment_kernel, (pairs, slots, columns), arguments, k, **sizes)
    sizes |= {"BLOCK": KEYS, "EPSILON": EPSILON, "HAS_PAST": segments > 1}
    sizes["UNIT"] = 1 if feature_map == "based" else d
    start(_output_kernel, (pairs, segments, columns), (q, k, v, out, held, *where, *strides, dv), q, **sizes)
    return out


@linear_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, normalise: bool, feature_map: str) -> Tensor:
    return q.new_empty(*q.shape[:3], v.shape[3])


def based(q: Tensor, k: Tensor, v: Tensor, normalise: bool = True) -> Tensor:
    """Linear attention with the first terms of exp(q.k / 4) as scores; no backward on a GPU.

    Args:
        q, k: (batch, heads, T, 16).
        v: (batch, heads, T, DV); DV is 16, 32 or a multiple of 64.
    """
    _check(q, k, v, (BASED_D,))
    if not launches(q, k, v):
        return reference_based(q, k, v, normalise)
    return linear_attention(*map(_dense_rows, (q, k, v)), normalise, "based")


def hedgehog(q: Tensor, k: Tensor, v: Tensor, normalise: bool = True) -> Tensor:
    """Linear attention with softmax(x) and softmax(-x) as features; no backward on a GPU.

    Args:
        q, k: (batch, heads, T, D); D is 16, 32, 64 or, but for float32, 128.
        v: (batch, heads, T, DV); DV is 16, 32 or a multiple of 64.
    """
    # In float32, blocks of 128 columns take more shared memory than there is.
    _check(q, k, v, (16, 32, 64) if q.dtype == torch.float32 else (16, 32, 64, 128))
    if not launches(q, k, v):
        return reference_hedgehog(q, k, v, normalise)
    return linear_attention(*map(_dense_rows, (q, k, v)), normalise, "hedgehog")


def _check(q: Tensor, k: Tensor, v: Tensor, dimensions: tuple[int, ...]) -> None:
    need_dtype(q, k, v, of=DTYPES)
    need_few(q, k, v)
    if q.ndim != 4 or q.shape != k.shape or v.ndim != 4 or q.shape[:3] != v.shape[:3]:
        told = ", ".join(str(tuple(x.shape)) for x in (q, k, v))
        raise Unsupported(f"shapes {told}: use (batch, heads, T, D) for q and k, (batch, heads, T, DV) for v")
    if q.shape[3] not in dimensions:
        raise Unsupported(f"D = {q.shape[3]} is not supported: use {', '.join(map(str, dimensions))}")
    if v.shape[3] not in (16, 32) and (v.shape[3] % 64 or not v.shape[3]):
        raise Unsupported(f"DV = {v.shape[3]} is not supported: use 16, 32 or a multiple of 64")


def _dense_rows(x: Tensor) -> Tensor:
    return x if x.stride(3) == 1 else x.contiguous()


def inputs(
    *, batch: int, heads: int, length: int, d: int, dv: int, dtype: torch.dtype = torch.bfloat16, device: str
) -> tuple[Tensor, ...]:
    draw = torch.Generator(device).manual_seed(0)
    shapes = [(batch, heads, length, width) for width in (d, d, dv)]
    return tuple(torch.randn(shape, generator=draw, device=device).to(dtype) for shape in shapes)


def _cost(
    features: int, batch: int, heads: int, length: int, d: int, dv: int, dtype: torch.dtype = torch.bfloat16
) -> Cost:
    rows = batch * heads * length
    # Each row is added to the state once and multiplied by it once.
    return Cost(size_bytes=rows * 2 * (d + dv) * dtype.itemsize, flops=rows * 4 * features * dv)


def cost_based(*, d: int, **sizes: Any) -> Cost:
    return _cost(1 + d + d * d, d=d, **sizes)


def cost_hedgehog(*, d: int, **sizes: Any) -> Cost:
    return _cost(2 * d, d=d, **sizes)


def _entry(formula: str, run: Callable, reference: Callable, cost: Callable, d: int) -> Kernel:
    cases = ((1, 1, 1, 64), (1, 2, 64, 16), (2, 1, 100, 32), (1, 1, 800, 64), (1, 2, 520, 128))
    sizes = ((4, 16, 2048, 64), (4, 16, 8192, 64), (1, 16, 8192, 64))
    names = ("batch", "heads", "length", "dv")
    named = [tuple({**dict(zip(names, row, strict=True)), "d": d} for row in rows) for rows in (cases, sizes)]
    return Kernel(run.__name__, formula, run, reference, inputs, *named, cost)


_BASED = "sum_s (1 + a + a^2 / 2) v_s / sum_s (1 + a + a^2 / 2), a = q_t.k_s / 4, s <= t"
_HEDGEHOG = "sum_s f(q_t).f(k_s) v_s / sum_s f(q_t).f(k_s), f(x) = (softmax(x), softmax(-x)), s <= t"
ENTRIES = (
    _entry(_BASED, based, reference_based, cost_based, BASED_D),
    _entry(_HEDGEHOG, hedgehog, reference_hedgehog, cost_hedgehog, 64),
)
