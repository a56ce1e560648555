"""Causal convolution with filters as long as u: y[t] = gate[t] * sum over s <= t of k[s] * u[t - s].

u is (batch, heads, L), k is (heads, L), the gate is as u or left out. It is a product with a triangular
matrix of which every diagonal is one value, block by block:

    y[block i] = sum over lags d of T(d) @ u[chunk at i's beginning - d],    T(d)[r, c] = k[d + r - c]

with zeros where that is negative. One program takes a head, S sequences and G blocks, one after the other, of
M steps; at each lag the blocks need the same T(d), so that it is a product of M x 64 by 64 x (G S), of which
the earlier half of the blocks is left out at lags that reach before the beginning of all of these. Products
are exact and their sums float32: an element near zero errs by little more than its own rounding, where
transforms in float16, which take fewer operations, err by the size of the whole sequence.

T(d) is read from copies of the filter, reversed, with zeros after it, each moved on by one step, so that
every row of T(d) begins at a multiple of 8 bytes in one of them (`transform`, which can be made once and
given to many calls). u is read again for each lag, from the second level of cache.

bf16 and fp16 with filters of the same type and L of 1024 and 4096 run here; for others torch.fft answers. The
work grows with L * L: from 16,384 on, transforms would take less. Infinite values count as NaN; NaN spoils
its own sequence from its block on, and in a filter all of the head. Forward only: backward through it raises.
Not covered: filters of another length than u, convolutions that are not causal.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch.nn import functional

from assay.tiles.kernel import Cost, Kernel, Unsupported, launches, need_dtype, need_few
from assay.tiles.launch import start
from assay.tiles.op import op

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
HALVES = (torch.float16, torch.bfloat16)
LENGTHS = (1024, 4096)
COPIES = 4
"""Of a filter: loads of 8 bytes, as these go through the first level of cache and those of 16 do not."""
ROOM = 128
"""Zeros after a filter: as many as a block has steps."""
K = 64
"""Steps of u that a product sums over."""
PROGRAMS_WANTED = 128
TINY = 1e-30


class Spectrum(NamedTuple):
    """A filter as the kernel reads it."""

    planes: torch.Tensor
    """(heads, COPIES, L + ROOM): reversed, each moved on by one step."""
    scale: torch.Tensor | None
    """(heads): what they are to be multiplied by, if anything."""


class Tile(NamedTuple):
    """What one program computes."""

    m: int
    """Steps of a block."""
    g: int
    """Blocks."""
    s: int
    """Sequences."""
    warps: int
    stages: int


TILES = ((128, 256, 8, 3), (128, 128, 4, 3), (128, 64, 4, 4), (64, 64, 4, 4), (64, 32, 4, 3))
"""Steps of a block, blocks times sequences, warps, stages; the first that keeps a GPU busy is taken."""


def tile(batch: int, heads: int, length: int) -> Tile:
    """Blocks are two or more, and no more than half of a sequence where there are many of these."""
    there = triton.next_power_of_2(batch)
    for m, n, *how in TILES:
        s = max(min(there, n // 2), n * m // length)
        g = n // s
        found = Tile(m, g, s, *how)
        programs = length // (m * g) * triton.cdiv(batch, s) * heads
        is_wasteful = s > there or (m * g == length and n > 64)
        if programs >= PROGRAMS_WANTED and not is_wasteful:
            break
    return found


@triton.jit
def copies_kernel(
    k_ptr, planes_ptr, k_h, k_l, L: tl.constexpr, P: tl.constexpr, ROOM: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    head, copy = tl.program_id(0).to(tl.int64), tl.program_id(1)
    here = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    place = L - 1 - copy - here
    values = tl.load(k_ptr + head * k_h + place * k_l, mask=place >= 0, other=0.0)
    tl.store(planes_ptr + (head * P + copy) * (L + ROOM) + here, values, mask=here < L + ROOM)


@triton.jit
def forward_kernel(
    u_ptr, gate_ptr, y_ptr, planes_ptr, scale_ptr, batch, heads, u_b, u_h, gate_b, gate_h,
    L: tl.constexpr, M: tl.constexpr, G: tl.constexpr, S: tl.constexpr, K: tl.constexpr, P: tl.constexpr,
    ROOM: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """M steps of G blocks of S sequences; what takes longest first, and long lags, often small."""
    WIDTH: tl.constexpr = L + ROOM
    H: tl.constexpr = G // 2
    parts = tl.cdiv(batch, S)
    place = tl.program_id(0) % (heads * parts)
    first = L // M - G - tl.program_id(0) // (heads * parts) * G
    head = (place // parts).to(tl.int64)
    n, r, c = tl.arange(0, H * S), tl.arange(0, M), tl.arange(0, K)
    sequence = ((place % parts) * S + n // H).to(tl.int64)
    begin = (first + n % H) * M
    is_there = sequence < batch
    row = u_ptr + head * u_h + sequence[:, None] * u_b + begin[:, None] + c[None, :]
    there = (P - 1 - r % P) * WIDTH + (L - P - r // P * P)
    there = tl.max_contiguous(tl.multiple_of(there[:, None] + c[None, :], (1, P)), (1, P))
    filters = planes_ptr + head * (P * WIDTH) + there
    late = tl.zeros((M, H * S), tl.float32)
    for lag in tl.range((first + G - 1) * M, (first + H - 1) * M, -K, num_stages=STAGES):
        t = tl.load(filters - lag)
        u = tl.load(row + (H * M - lag), mask=(is_there & (begin + H * M >= lag))[:, None], other=0.0)
        late = tl.dot(t, u.T, late)
    early = tl.zeros((M, H * S), tl.float32)
    for lag in tl.range((first + H - 1) * M, -M, -K, num_stages=STAGES):
        t = tl.load(filters - lag)
        v = tl.load(row + (H * M - lag), mask=is_there[:, None], other=0.0)
        late = tl.dot(t, v.T, late)
        u = tl.load(row - lag, mask=(is_there & (begin >= lag))[:, None], other=0.0)
        early = tl.dot(t, u.T, early)
    scale = 1.0 if scale_ptr is None else tl.load(scale_ptr + head)
    for half in tl.static_range(2):
        sums = late if half else early
        sums = sums * scale + sums * 0.0  # what is infinite becomes NaN
        here = begin + half * (H * M)
        if gate_ptr is not None:
            gate = gate_ptr + head * gate_h + sequence[None, :] * gate_b + here[None, :] + r[:, None]
            sums *= tl.load(gate, mask=is_there[None, :], other=0.0).to(tl.float32)
        y = y_ptr + (sequence * heads + head)[None, :] * L + here[None, :] + r[:, None]
        tl.store(y, sums.to(y_ptr.dtype.element_ty), mask=is_there[None, :])


def reference(
    u: torch.Tensor, k: torch.Tensor, gate: torch.Tensor | None = None, spectrum: Spectrum | None = None
) -> torch.Tensor:
    """By torch.fft; takes no notice of a spectrum."""
    length = u.shape[-1]
    both = torch.fft.rfft(u.float(), 2 * length) * torch.fft.rfft(k.float(), 2 * length)
    y = torch.fft.irfft(both, 2 * length)[..., :length]
    return (y if gate is None else y * gate.float()).to(u.dtype)


def transform(k: torch.Tensor, plane: torch.dtype | None = None) -> Spectrum:
    """What `long_convolution` takes in place of computing it from k each time; `plane` is the type of u."""
    length = _known(k.shape[-1])
    plane = plane or (k.dtype if k.dtype in HALVES else torch.float16)
    scale = None
    if plane != k.dtype:
        scale = k.float().abs().amax(1).clamp_min(TINY)
        k = (k.float() / scale[:, None]).to(plane)
    if launches(k):
        return Spectrum(_copies(k), scale)
    padded = functional.pad(k.flip(-1), (0, ROOM + COPIES - 1))
    return Spectrum(padded.unfold(-1, length + ROOM, 1).contiguous(), scale)


@op("long_convolution_copies")
def _copies(k: torch.Tensor) -> torch.Tensor:
    heads, length = k.shape
    planes = _copies_shape(k)
    grid = (heads, COPIES, triton.cdiv(length + ROOM, 1024))
    blocks = {"L": length, "P": COPIES, "ROOM": ROOM, "BLOCK": 1024}
    start(copies_kernel, grid, (k, planes, *k.stride()), k, **blocks, num_warps=4)
    return planes


@_copies.register_fake
def _copies_shape(k: torch.Tensor) -> torch.Tensor:
    return k.new_empty(k.shape[0], COPIES, k.shape[1] + ROOM)


def _known(length: int) -> int:
    if length not in LENGTHS:
        raise Unsupported(f"no transform of length {length}: use {' or '.join(map(str, LENGTHS))}")
    return length


@op("long_convolution")
def _op(
    u: torch.Tensor, planes: torch.Tensor, scale: torch.Tensor | None, gate: torch.Tensor | None
) -> torch.Tensor:
    y = _op_shape(u, planes, scale, gate)
    run(u, planes, scale, gate, y, tile(*u.shape))
    return y


@_op.register_fake
def _op_shape(
    u: torch.Tensor, planes: torch.Tensor, scale: torch.Tensor | None, gate: torch.Tensor | None
) -> torch.Tensor:
    return u.new_empty(u.shape)


def run(
    u: torch.Tensor,
    planes: torch.Tensor,
    scale: torch.Tensor | None,
    gate: torch.Tensor | None,
    y: torch.Tensor,
    t: Tile,
) -> None:
    """One launch."""
    batch, heads, length = u.shape
    u = u if u.stride(-1) == 1 else u.contiguous()
    scale = None if scale is None else scale.contiguous()
    gate = gate if gate is None or gate.stride(-1) == 1 else gate.contiguous()
    arguments = (
        u, gate, y, planes.contiguous(), scale, batch, heads, u.stride(0), u.stride(1),
        *((0, 0) if gate is None else gate.stride()[:2]),
    )  # fmt: skip
    grid = (length // (t.m * t.g) * triton.cdiv(batch, t.s) * heads,)
    start(forward_kernel, grid, arguments, u, **constants(t, length))


def constants(t: Tile, length: int) -> dict[str, int]:
    blocks = {"L": length, "M": t.m, "G": t.g, "S": t.s, "K": K, "P": COPIES, "ROOM": ROOM}
    return blocks | {"STAGES": t.stages, "num_warps": t.warps}


def _check(u: torch.Tensor, k: torch.Tensor, gate: torch.Tensor | None, spectrum: Spectrum | None) -> None:
    need_dtype(u, *(() if gate is None else (gate,)), of=DTYPES)
    need_dtype(k, of=DTYPES)
    if u.ndim != 3 or k.shape != u.shape[1:]:
        raise Unsupported(f"u is {tuple(u.shape)}, k {tuple(k.shape)}: use (batch, heads, L) and (heads, L)")
    if gate is not None and gate.shape != u.shape:
        raise Unsupported(f"u is {tuple(u.shape)}, the gate {tuple(gate.shape)}: use equal shapes")
    if spectrum is not None:
        wanted = (u.shape[1], COPIES, _known(u.shape[2]) + ROOM)
        scale = spectrum.scale
        if spectrum.planes.shape != wanted or not (scale is None or scale.shape == wanted[:1]):
            raise Unsupported(f"planes of {tuple(spectrum.planes.shape)}: use transform(k), {wanted} here")
        need_dtype(spectrum.planes, of=HALVES)
        if u.dtype in HALVES and u.dtype != spectrum.planes.dtype:
            raise Unsupported(f"u is {u.dtype}, planes {spectrum.planes.dtype}: use transform(k, u.dtype)")
        if scale is not None:
            need_dtype(scale, of=(torch.float32,))
    need_few(u, k)


def long_convolution(
    u: torch.Tensor, k: torch.Tensor, gate: torch.Tensor | None = None, spectrum: Spectrum | None = None
) -> torch.Tensor:
    """u (batch, heads, L), k (heads, L), gate as u: y as u; `spectrum` is transform(k). Forward only."""
    _check(u, k, gate, spectrum)
    launched = launches(u, k, *(t for t in (gate, *(spectrum or ())) if t is not None))
    if u.numel() == 0:
        return torch.empty_like(u, memory_format=torch.contiguous_format)
    is_exact = spectrum is not None or k.dtype == u.dtype
    if not launched or not is_exact or u.dtype == torch.float32 or u.shape[-1] not in LENGTHS:
        return reference(u, k, gate)
    return _op(u, *(spectrum or transform(k)), gate)


def inputs(
    *,
    batch: int,
    heads: int,
    length: int,
    gated: bool = False,
    dtype: torch.dtype = torch.bfloat16,
    device: str = "cuda",
) -> tuple[Any, ...]:
    """Filters that fade, as learned ones do."""
    u = torch.randn(batch, heads, length, device=device).to(dtype)
    fade = torch.exp(-4 * torch.arange(length, device=device) / length)
    k = (torch.randn(heads, length, device=device) * fade * length**-0.5).to(dtype)
    return (u, k, torch.randn(batch, heads, length, device=device).to(dtype)) if gated else (u, k)


def cost(
    *, batch: int, heads: int, length: int, gated: bool = False, dtype: torch.dtype = torch.bfloat16
) -> Cost:
    """u in and y out, the gate and the filter in; two transforms at 2.5 n log2(n), a product."""
    elements = batch * heads * length * (3 if gated else 2) + heads * length
    size = 2 * max(length, 1)
    transforms = round(2 * 2.5 * size * math.log2(size))
    return Cost(size_bytes=elements * dtype.itemsize, flops=batch * heads * (transforms + 3 * size))


ENTRY = Kernel(
    name="long_convolution",
    formula="y[t] = gate[t] * sum over s <= t of k[s] * u[t - s]",
    run=long_convolution,
    reference=reference,
    inputs=inputs,
    cases=(
        {"batch": 1, "heads": 1, "length": 1024},
        {"batch": 3, "heads": 2, "length": 1024, "gated": True},
        {"batch": 2, "heads": 1, "length": 4096, "gated": True},
        {"batch": 3, "heads": 1, "length": 4096},
        {"batch": 2, "heads": 3, "length": 100},
    ),
    sizes=(
        {"batch": 64, "heads": 768, "length": 1024},
        {"batch": 16, "heads": 768, "length": 4096},
        {"batch": 64, "heads": 768, "length": 1024, "gated": True},
        {"batch": 16, "heads": 768, "length": 4096, "gated": True},
    ),
    cost=cost,
)
