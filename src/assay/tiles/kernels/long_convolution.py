"""Causal convolution with filters as long as u: y[t] = gate[t] * sum over s <= t of k[s] * u[t - s].

u is (batch, heads, L), k is (heads, L), the gate is as u or left out. It goes by Fourier transforms of 2 L,
the second half zeros, so that nothing wraps around: y = inverse(transform(u) * transform(k)). With
2 L = A * B, u is an A x B matrix U, and a transform is two matrix products around one factor per element:

    transform(U) = ((Fa @ U) * T) @ Fb,    Fn[i, j] = w(n)^(i j) / sqrt(n),    T[i, j] = w(A B)^(i j),
    w(n) = exp(-2 pi sqrt(-1) / n)

of which the inverse is the conjugate, in reverse. Frequencies come in an order of their own, which the
filter's transform shares and nothing else sees. One program takes two sequences of a head, one as the real
and one as the imaginary part: the filter is real, so that they come out apart. Half of U is zeros and half of
the result is dropped, so that half of Fa will do on both ends. u is read once, y written once, the rest stays
on the multiprocessor.

The parts of complex numbers are float16, summed up in float32: each sequence is divided by its mean size and
each filter's transform by its largest value, so that nothing overflows, whatever the sizes are. Errors are
relative to the size of the whole sequence, as always with Fourier transforms.

bf16 and fp16 with L of 1024 and 4096 run here; for float32 and other lengths torch.fft answers. The filter's
transform can be made once (`transform`) and given to many calls. Forward only: backward through it raises.
With CUDA graphs, call it once before the capture, which makes the matrices. Not covered: filters of another
length than u, convolutions that are not causal.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from assay.tiles.kernel import Cost, Kernel, Unsupported, launches, need_dtype, need_few
from assay.tiles.launch import start
from assay.tiles.op import op

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
MATRICES = {1024: (64, 32), 4096: (128, 64)}
"""By L: A and B. The tensor cores of an H200 want 64 rows or more."""
WARPS = {1024: 4, 4096: 8}
TINY = 1e-30


class Spectrum(NamedTuple):
    """A filter's transform."""

    planes: torch.Tensor
    """(heads, 2, A, B): real and imaginary parts, at most 1."""
    scale: torch.Tensor
    """(heads): what they are to be multiplied by."""


@triton.jit
def product(a_re, a_im, b_re, b_im):
    """Of complex matrices."""
    re = tl.dot(a_re, b_re)
    re = tl.dot(-a_im, b_im, re)
    im = tl.dot(a_re, b_im)
    return re, tl.dot(a_im, b_re, im)


@triton.jit
def times(a_re, a_im, b_re, b_im, PLANE: tl.constexpr):
    """Of complex numbers, rounded for the next product."""
    re, im = b_re.to(tl.float32), b_im.to(tl.float32)
    return (a_re * re - a_im * im).to(PLANE), (a_re * im + a_im * re).to(PLANE)


@triton.jit
def sized(row_ptr, here, is_there, PLANE: tl.constexpr, TINY: tl.constexpr):
    """A sequence over its mean size, and that; NaN makes it zeros, so that its partner is not spoilt."""
    row = tl.load(row_ptr + here, mask=is_there, other=0.0).to(tl.float32)
    size = tl.maximum(tl.sum(tl.abs(row)) / row.numel, TINY)
    is_finite = size < float("inf")
    return tl.where(is_finite, row / size, 0.0).to(PLANE), tl.where(is_finite, size, float("nan"))


@triton.jit
def forward_kernel(
    u_ptr, gate_ptr, y_ptr, planes_ptr, scale_ptr, fa_ptr, fb_ptr, t_ptr, batch, heads,
    u_b, u_h, gate_b, gate_h, A: tl.constexpr, B: tl.constexpr, TINY: tl.constexpr,
):  # fmt: skip
    PLANE: tl.constexpr = fa_ptr.dtype.element_ty
    pairs = tl.cdiv(batch, 2)
    head = (tl.program_id(0) // pairs).to(tl.int64)
    first = (tl.program_id(0) % pairs).to(tl.int64) * 2
    is_there = first + 1 < batch
    i, j, half = tl.arange(0, A)[:, None], tl.arange(0, B)[None, :], tl.arange(0, A // 2)
    here, full = half[:, None] * B + j, i * B + j
    row = u_ptr + first * u_b + head * u_h
    re, re_size = sized(row, here, True, PLANE, TINY)
    im, im_size = sized(row + u_b, here, is_there, PLANE, TINY)
    fa = fa_ptr + i * A + half[None, :]
    re, im = product(tl.load(fa), tl.load(fa + A * A), re, im)
    re, im = times(re, im, tl.load(t_ptr + full), tl.load(t_ptr + A * B + full), PLANE)
    fb = fb_ptr + tl.arange(0, B)[:, None] * B + j
    re, im = product(re, im, tl.load(fb), tl.load(fb + B * B))
    k = planes_ptr + head * (2 * A * B) + full
    re, im = times(re, im, tl.load(k), tl.load(k + A * B), PLANE)
    re, im = product(re, im, tl.load(fb), -tl.load(fb + B * B))
    re, im = times(re, im, tl.load(t_ptr + full), -tl.load(t_ptr + A * B + full), PLANE)
    fa = fa_ptr + half[:, None] * A + tl.arange(0, A)[None, :]
    re, im = product(tl.load(fa), -tl.load(fa + A * A), re, im)
    scale = tl.load(scale_ptr + head)
    re, im = re * (re_size * scale), im * (im_size * scale)
    if gate_ptr is not None:
        gate = gate_ptr + first * gate_b + head * gate_h + here
        re *= tl.load(gate).to(tl.float32)
        im *= tl.load(gate + gate_b, mask=is_there, other=0.0).to(tl.float32)
    y = y_ptr + head * (A // 2 * B) + here
    tl.store(y + first * heads * (A // 2 * B), re)
    tl.store(y + (first + 1) * heads * (A // 2 * B), im, mask=is_there)


def reference(
    u: torch.Tensor, k: torch.Tensor, gate: torch.Tensor | None = None, spectrum: Spectrum | None = None
) -> torch.Tensor:
    """By torch.fft; takes no notice of a spectrum."""
    length = u.shape[-1]
    both = torch.fft.rfft(u.float(), 2 * length) * torch.fft.rfft(k.float(), 2 * length)
    y = torch.fft.irfft(both, 2 * length)[..., :length]
    return (y if gate is None else y * gate.float()).to(u.dtype)


def transform(k: torch.Tensor, plane: torch.dtype = torch.float16) -> Spectrum:
    """What `long_convolution` takes in place of computing it from k each time."""
    a, b = _matrix(k.shape[-1])
    values = torch.fft.fft(k.float(), 2 * k.shape[-1]).view(k.shape[0], b, a).mT
    scale = values.abs().amax((1, 2)).clamp_min(TINY)
    planes = torch.stack((values.real, values.imag), 1) / scale[:, None, None, None]
    return Spectrum(planes.to(plane), scale)


def _matrix(length: int) -> tuple[int, int]:
    if length not in MATRICES:
        raise Unsupported(f"no transform of length {length}: use {' or '.join(map(str, MATRICES))}")
    return MATRICES[length]


def _tables(length: int, plane: torch.dtype, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Fa, Fb and T, each as real and imaginary parts; kept, but not what a capture has not computed yet."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return _new_tables.__wrapped__(length, plane, device)
    return _new_tables(length, plane, device)


@functools.cache
def _new_tables(length: int, plane: torch.dtype, device: torch.device) -> tuple[torch.Tensor, ...]:
    a, b = MATRICES[length]
    return tuple(
        (_powers(rows, columns, base, device) * size).to(plane).contiguous()
        for rows, columns, base, size in ((a, a, a, a**-0.5), (b, b, b, b**-0.5), (a, b, a * b, 1.0))
    )


def _powers(rows: int, columns: int, base: int, device: torch.device) -> torch.Tensor:
    """w(base)^(i j), in float64."""
    i = torch.arange(rows, device=device)[:, None]
    angle = (i * torch.arange(columns, device=device) % base).double() * (-2 * math.pi / base)
    return torch.stack((angle.cos(), angle.sin()))


@op("long_convolution")
def _op(
    u: torch.Tensor, planes: torch.Tensor, scale: torch.Tensor, gate: torch.Tensor | None
) -> torch.Tensor:
    batch, heads, length = u.shape
    y = _op_shape(u, planes, scale, gate)
    u = u if u.stride(-1) == 1 else u.contiguous()
    gate = gate if gate is None or gate.stride(-1) == 1 else gate.contiguous()
    a, b = MATRICES[length]
    arguments = (
        u, gate, y, planes.contiguous(), scale.contiguous(), *_tables(length, planes.dtype, u.device),
        batch, heads, u.stride(0), u.stride(1), *((0, 0) if gate is None else gate.stride()[:2]),
    )  # fmt: skip
    grid = (triton.cdiv(batch, 2) * heads,)
    start(forward_kernel, grid, arguments, u, A=a, B=b, TINY=TINY, num_warps=WARPS[length])
    return y


@_op.register_fake
def _op_shape(
    u: torch.Tensor, planes: torch.Tensor, scale: torch.Tensor, gate: torch.Tensor | None
) -> torch.Tensor:
    return u.new_empty(u.shape)


def _check(u: torch.Tensor, k: torch.Tensor, gate: torch.Tensor | None, spectrum: Spectrum | None) -> None:
    need_dtype(u, *(() if gate is None else (gate,)), of=DTYPES)
    need_dtype(k, of=DTYPES)
    if u.ndim != 3 or k.shape != u.shape[1:]:
        raise Unsupported(f"u is {tuple(u.shape)}, k {tuple(k.shape)}: use (batch, heads, L) and (heads, L)")
    if gate is not None and gate.shape != u.shape:
        raise Unsupported(f"u is {tuple(u.shape)}, the gate {tuple(gate.shape)}: use equal shapes")
    if spectrum is not None:
        wanted = (u.shape[1], 2, *_matrix(u.shape[2]))
        if spectrum.planes.shape != wanted or spectrum.scale.shape != wanted[:1]:
            raise Unsupported(f"planes of {tuple(spectrum.planes.shape)}: use transform(k), {wanted} here")
        need_dtype(spectrum.planes, of=(torch.float16,))
        need_dtype(spectrum.scale, of=(torch.float32,))
    need_few(u, k)


def long_convolution(
    u: torch.Tensor, k: torch.Tensor, gate: torch.Tensor | None = None, spectrum: Spectrum | None = None
) -> torch.Tensor:
    """u (batch, heads, L), k (heads, L), gate as u: y as u; `spectrum` is transform(k). Forward only."""
    _check(u, k, gate, spectrum)
    launched = launches(u, k, *(t for t in (gate, *(spectrum or ())) if t is not None))
    if u.numel() == 0:
        return torch.empty_like(u, memory_format=torch.contiguous_format)
    if not launched or u.dtype == torch.float32 or u.shape[-1] not in MATRICES:
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
