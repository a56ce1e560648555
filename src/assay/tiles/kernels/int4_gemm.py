"""Y = X @ W^T with W in four bits, unpacked in registers: bf16 or fp16 in and out. Forward only.

    W[n, k] = (q[n, k] - zero[n, k // group]) * scale[n, k // group]

X is (..., K). W is packed as (N, K / 2) bytes: q of an even k in the low four bits of a byte, that of the
odd k after it in the high ones. Scales are (N, K / group) in X's type or float32, zeros (N, K / group)
bytes from 0 to 15, or 8 everywhere where none are given; a group is 64 or 128 entries.

A step is one group: the product of X with q - 8, which both types hold exactly, is corrected for the zeros,
scaled and added in float32, so that W itself is never rounded. On Hopper, if groups are of 128 and all rows
begin at multiples of 16 bytes, int4_few_rows.py and, for more than 8 rows of X, int4_hopper.py answer.
Elsewhere, where X has few rows, several programs share the groups of a block of W, and a second kernel adds
up what they leave in float32, always in one order.

Not covered: gradients, other packings (interleaved rows, zeros in four bits), a bias. Where X has many
rows, W is unpacked again for each 128 of them.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from assay.tiles.kernel import MOST_ELEMENTS, Cost, Kernel, Unsupported, launches, need_dtype, need_few
from assay.tiles.kernels.int4_few_rows import MOST_ROWS, few_rows_gemm
from assay.tiles.kernels.int4_hopper import gemm_of_words, is_for
from assay.tiles.launch import start
from assay.tiles.op import op

GROUPS = (64, 128)
MIDDLE = 8
"""The zero of weights that come without zeros."""
SHORT = 32
"""So many rows of X are less work than reading W."""
MULTIPROCESSORS = 132
MOST_SPLITS = 16
BLOCK = 256
"""Sums that a program adds up."""


@triton.jit
def _centred(q, dtype: tl.constexpr):
    """q - 8 for bytes q below 16, exactly: q is or-ed into a number whose last bit is worth one."""
    if dtype == tl.bfloat16:
        number = (q.to(tl.uint16) | 0x4300).to(tl.bfloat16, bitcast=True) - 136.0
    else:
        number = (q.to(tl.uint16) | 0x6400).to(tl.float16, bitcast=True) - 1032.0
    return number


@triton.jit
def _int4_gemm_kernel(
    x, packed, scale, zero, out, M, N, groups, per_split, x_row, w_row, s_row, z_row,
    GROUP: tl.constexpr, HAS_ZERO: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """A tile of Y^T from the groups of one split: W is the operand that comes from registers."""
    rows = tl.cdiv(M, BM)
    m = (tl.program_id(0) % rows) * BM + tl.arange(0, BM)
    n = (tl.program_id(0) // rows) * BN + tl.arange(0, BN)
    split = tl.program_id(1)
    # What lies beyond the edges is computed from the last row, and not stored.
    row, column = tl.minimum(m, M - 1).to(tl.int64), tl.minimum(n, N - 1).to(tl.int64)
    xs = x + row[:, None] * x_row + tl.arange(0, GROUP)[None, :]
    ws = packed + column[:, None] * w_row + tl.arange(0, GROUP // 2)[None, :]
    first, end = split * per_split, min((split + 1) * per_split, groups)
    factor = tl.load(scale + column * s_row + first)
    sums = tl.zeros([BN, BM], tl.float32)
    for g in range(first, end):
        even, odd = tl.split(tl.reshape(tl.load(xs + g * GROUP), (BM, GROUP // 2, 2)))
        q = tl.load(ws + g * (GROUP // 2))
        following = tl.load(scale + column * s_row + min(g + 1, end - 1))  # not waited for in this step
        if HAS_ZERO:
            shift = tl.load(zero + column * z_row + g).to(tl.float32) - 8
            total = tl.sum(even.to(tl.float32), 1) + tl.sum(odd.to(tl.float32), 1)
        product = tl.dot(_centred(q & 15, x.dtype.element_ty), tl.trans(even))
        product = tl.dot(_centred(q >> 4, x.dtype.element_ty), tl.trans(odd), product)
        if HAS_ZERO:
            product -= shift[:, None] * total[None, :]
        sums += product * factor.to(tl.float32)[:, None]
        factor = following
    places = out + (split * M + m[:, None]).to(tl.int64) * N + n[None, :]
    tl.store(places, tl.trans(sums).to(out.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def _added_kernel(parts, out, size, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    total = tl.load(parts + at, mask=inside, other=0.0)
    for _ in tl.static_range(1, SPLITS):
        parts += size
        total += tl.load(parts + at, mask=inside, other=0.0)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


def reference(
    x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None = None
) -> torch.Tensor:
    return (x.float() @ unpacked(packed, scales, zeros).T).to(x.dtype)


def unpacked(packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None = None) -> torch.Tensor:
    """W (N, K) in float32."""
    q = torch.stack((packed & 15, packed >> 4), -1).flatten(1).float()
    group = q.shape[1] // scales.shape[1] if scales.shape[1] else 1
    zero = MIDDLE if zeros is None else zeros.float().repeat_interleave(group, 1)
    return (q - zero) * scales.float().repeat_interleave(group, 1)


@op("int4_gemm")
def _int4_gemm(
    x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None
) -> torch.Tensor:
    m, n, groups = x.shape[0], packed.shape[0], scales.shape[1]
    if is_for(*(t for t in (x, packed, scales, zeros) if t is not None)):
        product = few_rows_gemm if m <= MOST_ROWS else gemm_of_words
        return product(x, packed, scales, zeros)
    BM, BN, warps, stages = choose(m, zeros is not None)
    tiles = triton.cdiv(m, BM) * triton.cdiv(n, BN)
    splits, per_split = split(tiles, groups, is_short=BM <= SHORT)
    y = x.new_empty(m, n)
    parts = y if splits == 1 else x.new_empty(splits, m, n, dtype=torch.float32)
    zero = packed if zeros is None else zeros
    strides = x.stride(0), packed.stride(0), scales.stride(0), zero.stride(0)
    start(
        _int4_gemm_kernel, (tiles, splits),
        (x, packed, scales, zero, parts, m, n, groups, per_split, *strides), x,
        GROUP=x.shape[1] // groups, HAS_ZERO=zeros is not None, BM=BM, BN=BN,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    if splits > 1:
        grid = (triton.cdiv(m * n, BLOCK),)
        start(_added_kernel, grid, (parts, y, m * n), x, SPLITS=splits, BLOCK=BLOCK)
    return y


@_int4_gemm.register_fake
def _(x, packed, scales, zeros):
    return x.new_empty(x.shape[0], packed.shape[0])


def choose(m: int, has_zeros: bool = False) -> tuple[int, int, int, int]:
    """Rows of X and of W in a tile, warps and stages: few rows wait for memory, so they have more of it
    under way; 128 rows with zeros do not fit into registers."""
    BM = min(max(triton.next_power_of_2(m), 16), 64 if has_zeros else 128)
    return (BM, 64, 4, 6) if BM <= SHORT else (BM, 128, 8, 4)


def split(tiles: int, groups: int, *, is_short: bool) -> tuple[int, int]:
    """Into how many parts the groups are split, and how many groups a part has: two programs at least for
    each multiprocessor where they wait for memory, else no more than one."""
    wanted = triton.cdiv(2 * MULTIPROCESSORS, tiles) if is_short else max(MULTIPROCESSORS // tiles, 1)
    per_split = triton.cdiv(groups, min(wanted, groups, MOST_SPLITS))
    return triton.cdiv(groups, per_split), per_split


def int4_gemm(
    x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None = None
) -> torch.Tensor:
    """x (..., K) @ W^T, with W (N, K) packed as (N, K / 2) bytes, and scales and zeros (N, K / group).
    Zeros are 0 to 15, which is not checked."""
    _check(x, packed, scales, zeros)
    given = [t for t in (x, packed, scales, zeros) if t is not None]
    shape = (*x.shape[:-1], packed.shape[0])
    if not launches(*given) or 0 in (*x.shape, *packed.shape):
        return reference(x, packed, scales, zeros)
    rows = x.reshape(math.prod(shape[:-1]), x.shape[-1])
    rows, packed, scales = (t if t.stride(1) == 1 else t.contiguous() for t in (rows, packed, scales))
    if zeros is not None and zeros.stride(1) != 1:
        zeros = zeros.contiguous()
    return _int4_gemm(rows, packed, scales, zeros).view(shape)


def _check(x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None) -> None:
    need_dtype(x, of=(torch.bfloat16, torch.float16))
    need_dtype(packed, *(() if zeros is None else (zeros,)), of=(torch.uint8,))
    need_dtype(scales, of=(x.dtype, torch.float32))
    need_few(x, packed)
    if not (x.dim() and packed.dim() == scales.dim() == 2 and x.shape[-1] == 2 * packed.shape[1]):
        raise Unsupported(f"{list(x.shape)} and {list(packed.shape)}: want (..., K) and (N, K / 2)")
    k, n = x.shape[-1], packed.shape[0]
    if scales.shape not in [(n, k // group) for group in GROUPS if k % group == 0]:
        sizes = " or ".join(map(str, GROUPS))
        raise Unsupported(f"scales of {list(scales.shape)}: want ({n}, {k} / group), a group being {sizes}")
    if zeros is not None and zeros.shape != scales.shape:
        raise Unsupported(f"zeros of {list(zeros.shape)} for scales of {list(scales.shape)}")
    if math.prod(x.shape[:-1]) * n > MOST_ELEMENTS:
        raise Unsupported("a result of more than 2^31 - 1 elements: split the tensor")
    if torch.is_grad_enabled() and (x.requires_grad or scales.requires_grad):
        raise Unsupported("there is no backward: detach what needs gradients")


def inputs(
    m: int, n: int, k: int, group: int, has_zeros: bool, device: str, dtype: torch.dtype = torch.bfloat16
) -> tuple[torch.Tensor, ...]:
    x = torch.randn(m, k, device=device).to(dtype)
    packed = torch.randint(256, (n, k // 2), device=device, dtype=torch.uint8)
    scales = (torch.rand(n, k // group, device=device) / 8 + 1 / 16).to(dtype)
    zeros = torch.randint(16, scales.shape, device=device, dtype=torch.uint8)
    return (x, packed, scales, zeros) if has_zeros else (x, packed, scales)


def cost(m: int, n: int, k: int, group: int, has_zeros: bool) -> Cost:
    groups = n * (k // group)
    return Cost(2 * m * (k + n) + n * k // 2 + (3 if has_zeros else 2) * groups, 2 * m * n * k)


def _sizes(m: int) -> dict[str, int | bool]:
    return {"m": m, "n": 8192, "k": 8192, "group": 128, "has_zeros": False}


ENTRY = Kernel(
    name="int4_gemm",
    formula="X @ ((q - zero) * scale)^T",
    run=int4_gemm,
    reference=reference,
    inputs=inputs,
    cases=(
        {"m": 1, "n": 192, "k": 512, "group": 128, "has_zeros": False},
        {"m": 5, "n": 100, "k": 448, "group": 64, "has_zeros": True},
        {"m": 7, "n": 100, "k": 640, "group": 128, "has_zeros": True},
        {"m": 40, "n": 200, "k": 256, "group": 128, "has_zeros": True},
        {"m": 150, "n": 130, "k": 192, "group": 64, "has_zeros": False},
        {"m": 150, "n": 130, "k": 384, "group": 128, "has_zeros": False},
    ),
    sizes=tuple(_sizes(m) for m in (1, 4, 16, 64, 256, 1024)),
    cost=cost,
)
