"""Mamba 2: a state for each head that decays at its own pace, in chunks (state space duality).

    h_t = exp(dt_t a) h_{t-1} + dt_t b_t x_t^T,   y_t = c_t h_t + d x_t

x and y are (batch, T, heads, P); dt is (batch, T, heads), as it comes out of its softplus; a and d are
(heads); b and c are (batch, T, groups, N), one group for heads / groups heads that follow each other. Strides
may be any. No state grows: what comes of a negative dt or a positive a is NaN.

T is cut into segments, as many as fill the GPU, and each of these into chunks of 64. One kernel walks over a
segment's chunks and writes the sums of dt a from each chunk's start, the state (N x P, float32) that the
segment ends in when it begins with none, and its decay; one puts together what the segments before its own
ended in, walks again from there and writes y. With s those sums, a chunk's own part is
(c_i.b_j) exp(s_i - s_j) dt_j for j <= i, times x; the rest is exp(s_i) c_i h.

States and weights are rounded to the type of x for the tensor cores. Sums of dt a are float32: behind rows of
a chunk that forget all, decays have three digits or more.

On Hopper, heads of P = 64 with N = 128 in bf16 or fp16 that share b and c are for mamba2_hopper.py.

Not covered: backward (forward only), first and last states for decoding, sequences packed into one, the gate.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.tiles.kernel import Cost, Kernel, Unsupported, launches, need_dtype, need_few
from assay.tiles.kernels.mamba2_ends import ALL_IS_FORGOTTEN
from assay.tiles.kernels.mamba2_hopper import covers, mamba2_on_hopper
from assay.tiles.launch import runs_on_hopper, start
from assay.tiles.op import op

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
CHUNK = 64
LEAST_CHUNKS = 4
"""Of a segment: a shorter one would spend more on its state than on its rows."""
WANTED_PROGRAMS = 2 * 132
"""Two for each multiprocessor of an H200."""
SEGMENT_OPTIONS = {"num_warps": 4, "num_stages": 3}
OUTPUT_OPTIONS = {"num_warps": 4, "num_stages": 2}
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _start(tensor, pair, heads, shared, strides):
    """Where a batch entry and a head, or the group that so many heads share, begin."""
    head = (pair % heads) // shared
    return tensor + (pair // heads).to(tl.int64) * strides[0] + head.to(tl.int64) * strides[2]


@triton.jit
def _rows(start, first, stride, T, CHUNK: tl.constexpr, WIDTH: tl.constexpr):
    """A chunk of rows, with zeros past the end."""
    row = first + tl.arange(0, CHUNK)
    places = start + row[:, None].to(tl.int64) * stride + tl.arange(0, WIDTH)[None, :]
    return tl.load(places, mask=row[:, None] < T, other=0.0)


@triton.jit
def _left(x, step, decay, total):
    """What is left of rows at the end of their chunk."""
    return (x.to(tl.float32) * (tl.exp2(total - decay) * step)[:, None]).to(x.dtype)


@triton.jit
def _state_places(ends, slot, column, P, N: tl.constexpr, BP: tl.constexpr):
    state = ends + slot.to(tl.int64) * (N * P) + column
    return state + tl.arange(0, N)[:, None] * P + tl.arange(0, BP)[None, :]


@triton.jit
def _segment_kernel(
    x, dt, a, b, sums, steps, ends, decays, T, heads, shared, segments, chunks,
    x_strides, dt_strides, b_strides, P,
    N: tl.constexpr, BP: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The state that one segment ends in when it begins with none; of its rows the steps, and the sums within
    a chunk of their decays' logarithms, to the base of 2."""
    pair, segment, column = tl.program_id(0), tl.program_id(1), tl.program_id(2) * BP
    x = _start(x, pair, heads, 1, x_strides) + column
    dt = _start(dt, pair, heads, 1, dt_strides)
    b = _start(b, pair, heads, shared, b_strides)
    pace = tl.load(a + pair % heads).to(tl.float32) * LOG2_E
    pace = tl.where(pace > 0, float("nan"), pace)
    line = tl.arange(0, CHUNK)
    kept = pair.to(tl.int64) * (segments * chunks * CHUNK) + line
    state = tl.zeros([N, BP], tl.float32)
    whole = 0.0
    for chunk in range(segment * chunks, (segment + 1) * chunks):
        first = chunk * CHUNK
        row = (first + line).to(tl.int64)
        step = tl.load(dt + row * dt_strides[1], mask=row < T, other=0.0).to(tl.float32)
        # What a bad step leaves is NaN from its row on, and nothing else is.
        lost = tl.where(step >= 0, step * pace, float("nan"))
        # None is made stronger than it takes for nothing to be left: their sums keep their digits so.
        lost = tl.where(lost < ALL_IS_FORGOTTEN, ALL_IS_FORGOTTEN, lost)
        step = tl.where(step >= 0, step, 0.0)
        decay, total = tl.cumsum(lost, 0), tl.sum(lost, 0)
        tl.store(sums + kept + first, decay)
        tl.store(steps + kept + first, step)
        own = _rows(x, first, x_strides[1], T, CHUNK, BP)
        inward = tl.trans(_rows(b, first, b_strides[1], T, CHUNK, N))
        left = _left(own, step, decay, total)
        state = tl.dot(inward, left, state * tl.exp2(total), input_precision="tf32x3")
        whole += total
    slot = pair * segments + segment
    tl.store(_state_places(ends, slot, column, P, N, BP), state)
    tl.store(decays + slot, whole)


@triton.jit
def _output_kernel(
    x, b, c, d, y, sums, steps, ends, decays, T, heads, shared, segments, chunks,
    x_strides, b_strides, c_strides, P,
    N: tl.constexpr, BP: tl.constexpr, CHUNK: tl.constexpr, HAS_PAST: tl.constexpr, HAS_D: tl.constexpr,
):  # fmt: skip
    """The outputs of one segment, from the state that it begins with."""
    pair, segment, column = tl.program_id(0), tl.program_id(1), tl.program_id(2) * BP
    x = _start(x, pair, heads, 1, x_strides) + column
    b = _start(b, pair, heads, shared, b_strides)
    c = _start(c, pair, heads, shared, c_strides)
    y += (pair // heads).to(tl.int64) * T * heads * P + (pair % heads) * P + column
    sums += pair.to(tl.int64) * (segments * chunks * CHUNK)
    steps += pair.to(tl.int64) * (segments * chunks * CHUNK)
    state = tl.zeros([N, BP], tl.float32)
    if HAS_PAST:
        for before in tl.range(segment, num_stages=1):
            slot = pair * segments + before
            ended = tl.load(_state_places(ends, slot, column, P, N, BP))
            state = state * tl.exp2(tl.load(decays + slot)) + ended
    skip = tl.load(d + pair % heads).to(tl.float32) if HAS_D else 0.0
    line = tl.arange(0, CHUNK)
    for chunk in range(segment * chunks, tl.minimum((segment + 1) * chunks, tl.cdiv(T, CHUNK))):
        first = chunk * CHUNK
        own = _rows(x, first, x_strides[1], T, CHUNK, BP)
        inward = _rows(b, first, b_strides[1], T, CHUNK, N)
        outward = _rows(c, first, c_strides[1], T, CHUNK, N)
        decay, step = tl.load(sums + first + line), tl.load(steps + first + line)
        total = tl.load(sums + first + CHUNK - 1)
        alike = tl.dot(outward, tl.trans(inward), input_precision="tf32x3")
        # Masked before the exponential: a query does not see later keys, whose decay would be growth.
        between = tl.where(line[:, None] >= line[None, :], decay[:, None] - decay[None, :], float("-inf"))
        weights = (alike * tl.exp2(between) * step[None, :]).to(own.dtype)
        left = _left(own, step, decay, total)
        got = tl.dot(outward, state.to(own.dtype), input_precision="tf32x3") * tl.exp2(decay)[:, None]
        got = tl.dot(weights, own, got, input_precision="tf32x3")
        state = tl.dot(tl.trans(inward), left, state * tl.exp2(total), input_precision="tf32x3")
        if HAS_D:
            got += skip * own.to(tl.float32)
        row = first + line[:, None]
        places = y + row.to(tl.int64) * (heads * P) + tl.arange(0, BP)[None, :]
        tl.store(places, got.to(y.dtype.element_ty), mask=row < T)


def reference(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor | None = None) -> Tensor:
    """The recurrence, one step after the other."""
    wide, step = x.float(), torch.where(dt < 0, torch.nan, dt.float())
    per_head = x.shape[2] // max(1, b.shape[2])
    inward, outward = (t.float().repeat_interleave(per_head, 2) for t in (b, c))
    decay = (step * torch.where(a > 0, torch.nan, a.float())).exp()
    state = wide.new_zeros(x.shape[0], x.shape[2], x.shape[3], b.shape[3])
    rows = []
    for t in range(x.shape[1]):
        added = (step[:, t, :, None] * wide[:, t])[..., None] * inward[:, t, :, None]
        state = state * decay[:, t, :, None, None] + added
        rows.append((state @ outward[:, t, :, :, None])[..., 0])
    y = torch.stack(rows, 1) if rows else torch.zeros_like(wide)
    if d is not None:
        y = y + d.float()[:, None] * wide
    return y.to(x.dtype)


def _segments(length: int, programs: int) -> tuple[int, int]:
    """How many, and chunks in each.

    Args:
        programs: of one segment.
    """
    chunks = triton.cdiv(length, CHUNK)
    each = triton.cdiv(chunks, max(1, min(WANTED_PROGRAMS // programs, chunks // LEAST_CHUNKS)))
    return triton.cdiv(chunks, each), each


@op("mamba2")
def mamba2_op(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor | None) -> Tensor:
    """Rows of x, b and c must be dense, and so must a and d; `mamba2` sees to it."""
    batch, length, heads, p = x.shape
    n, pairs, shared = b.shape[3], batch * heads, heads // max(1, b.shape[2])
    if not x.numel():
        return x.new_empty(x.shape)
    if covers(x, b) and runs_on_hopper(x, dt, a, b, c):
        return mamba2_on_hopper(x, dt, a, b, c, d)
    y, bp = x.new_empty(x.shape), min(p, 64 if n <= 128 else 32)
    segments, chunks = _segments(length, pairs * (p // bp))
    sums, steps = x.new_empty(2, pairs, segments * chunks * CHUNK, dtype=torch.float32)
    ends, decays = sums.new_empty(pairs, segments, n * p), sums.new_empty(pairs, segments)
    where = (length, heads, shared, segments, chunks)
    of_x, of_dt, of_b, of_c = (t.stride()[:3] for t in (x, dt, b, c))
    sizes = {"N": n, "BP": bp, "CHUNK": CHUNK}
    grid = (pairs, segments, p // bp)
    arguments = (x, dt, a, b, sums, steps, ends, decays, *where, of_x, of_dt, of_b, p)
    start(_segment_kernel, grid, arguments, x, **sizes, **SEGMENT_OPTIONS)
    sizes |= {"HAS_PAST": segments > 1, "HAS_D": d is not None}
    arguments = (x, b, c, a if d is None else d, y, sums, steps, ends, decays, *where, of_x, of_b, of_c, p)
    start(_output_kernel, grid, arguments, x, **sizes, **OUTPUT_OPTIONS)
    return y


@mamba2_op.register_fake
def _(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor | None) -> Tensor:
    return x.new_empty(x.shape)


def mamba2(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor | None = None) -> Tensor:
    """The chunked scan; no backward on a GPU.

    Args:
        x: (batch, T, heads, P); P is 16, 32 or a multiple of 64.
        dt: (batch, T, heads).
        a: (heads).
        b, c: (batch, T, groups, N) of the type of x; N is 16, 32, 64, 128 or, but for float32, 256.
        d: (heads).
    """
    given = (x, dt, a, b, c) if d is None else (x, dt, a, b, c, d)
    need_dtype(x, b, c, of=DTYPES)
    for tensor in given:
        need_dtype(tensor, of=DTYPES)
    need_few(*given)
    _check_shapes(*given)
    if not launches(*given):
        return reference(*given)
    x, b, c = (t if t.stride(3) == 1 else t.contiguous() for t in (x, b, c))
    return mamba2_op(x, dt, a.contiguous(), b, c, None if d is None else d.contiguous())


def _check_shapes(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor | None = None) -> None:
    is_fit = x.ndim == b.ndim == 4 and b.shape == c.shape and b.shape[:2] == x.shape[:2]
    if (
        not is_fit
        or dt.shape != x.shape[:3]
        or not all(t.shape == x.shape[2:3] for t in (a, d) if t is not None)
    ):
        told = ", ".join(str(tuple(t.shape)) for t in (x, dt, a, b, c))
        wanted = "use (batch, T, heads, P), (batch, T, heads), (heads), and (batch, T, groups, N) for b and c"
        raise Unsupported(f"{told}: {wanted}")
    heads, p, groups, n = *x.shape[2:], *b.shape[2:]
    if heads % groups if groups else heads:
        raise Unsupported(f"{heads} heads cannot share {groups} groups: use a divisor")
    if p not in (16, 32) and (p % 64 or not p):
        raise Unsupported(f"P = {p} is not supported: use 16, 32 or a multiple of 64")
    # In float32, blocks of 256 columns take more shared memory than there is.
    widths = (16, 32, 64, 128) if x.dtype == torch.float32 else (16, 32, 64, 128, 256)
    if n not in widths:
        raise Unsupported(f"N = {n} is not supported: use {', '.join(map(str, widths))}")


def inputs(
    *,
    batch: int,
    length: int,
    heads: int,
    p: int,
    groups: int,
    n: int,
    dtype: torch.dtype = torch.bfloat16,
    device: str = "cuda",
) -> tuple[Tensor, ...]:
    """Steps and decays as a model is initialised with: dt from 0.001 to 0.1, a from -1 to -16."""
    draw = torch.Generator(device).manual_seed(0)
    x = torch.randn(batch, length, heads, p, generator=draw, device=device).to(dtype)
    dt = 0.001 * 100 ** torch.rand(batch, length, heads, generator=draw, device=device)
    a = -1 - 15 * torch.rand(heads, generator=draw, device=device)
    b, c = torch.randn(2, batch, length, groups, n, generator=draw, device=device).to(dtype)
    return x, dt, a, b, c, torch.randn(heads, generator=draw, device=device)


def cost(
    *, batch: int, length: int, heads: int, p: int, groups: int, n: int, dtype: torch.dtype = torch.bfloat16
) -> Cost:
    """Everything once; each row is added to its head's state once and multiplied by it once."""
    rows = batch * length
    size_bytes = rows * ((2 * heads * p + 2 * groups * n) * dtype.itemsize + 4 * heads) + 8 * heads
    return Cost(size_bytes, flops=4 * rows * heads * p * n)


def _sizes(*rows: tuple[int, ...]) -> tuple[dict[str, int], ...]:
    return tuple(
        dict(zip(("batch", "length", "heads", "p", "groups", "n"), row, strict=True)) for row in rows
    )


ENTRY = Kernel(
    name="mamba2",
    formula="h_t = exp(dt_t a) h_{t-1} + dt_t b_t x_t^T, y_t = c_t h_t + d x_t",
    run=mamba2,
    reference=reference,
    inputs=inputs,
    cases=_sizes(
        (1, 1, 1, 16, 1, 16),
        (2, 100, 4, 32, 2, 16),
        (1, 800, 1, 64, 1, 64),
        (1, 70, 2, 64, 1, 128),
        (1, 520, 2, 128, 1, 16),
    ),
    sizes=_sizes((4, 2048, 16, 64, 1, 128), (4, 8192, 16, 64, 1, 128), (1, 8192, 32, 64, 1, 128)),
    cost=cost,
)
