"""C = (A * scale_a) @ (B * scale_b)^T: fp8 (e4m3) in, float32 inside, bf16 out. Forward only.

A is (M, K), B is (N, K). Scales are float32, of one of two kinds:

    blocks   scale_a (M, K / 128) and scale_b (N / 128, K / 128), rounded up: one for 128 entries of a row
             of A, one for 128 x 128 entries of B. The product of 128 entries begins at zero; it is scaled
             and added up in float32.
    tensor   one for all of A and one for all of B, applied at the end. Sums stay in the tensor core, which
             keeps about 14 bits of them: the longer K is, the more they are off.

Here is the kernel for one scale, in tiles of 128 rows and 64 to 256 columns with two consumers; that for
scales of blocks is in fp8_blocks.py.

Not covered: gradients, e5m2, a bias, results other than bf16. Where this is no Hopper, or K is no multiple
of 16, torch answers in float32.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
import triton
from torch.nn.functional import pad

from assay.tiles.choice import is_torchs
from assay.tiles.hopper import fence_async_shared, gl, jit, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from assay.tiles.kernel import MOST_ELEMENTS, Cost, Kernel, Unsupported, need_dtype, need_few, need_one_device
from assay.tiles.kernels.fp8_blocks import BLOCK, multiply_blocks
from assay.tiles.launch import (
    aligned,
    can_be_described,
    describe,
    launch,
    multiprocessors,
    runs_on_hopper,
    tile_that_ends_first,
)
from assay.tiles.op import op
from assay.tiles.pipeline import grouped, pipeline
from assay.tiles.work import Work

LARGEST = 448.0
"""Of e4m3."""
STAGES = {256: 3, 128: 6, 64: 8}
TILES = ((128, 256, 1.0, 6.0), (128, 128, 0.52, 2.5), (128, 64, 0.33, 1.7))


@dataclass(frozen=True)
class Fp8Gemm(Work):
    """g: A, B, C, M, N, K, the scales of A and B."""

    stages: int = 6
    BN: int = 128
    group: int = 8
    """Rows of tiles that are walked together, so that their operands stay in the L2 cache."""

    @jit
    def room(w: gl.constexpr, g):
        a = gl.allocate_shared_memory(g[0].dtype, [2 * w.stages, 64, 128], g[0].layout)
        b = gl.allocate_shared_memory(g[1].dtype, [w.stages, w.BN, 128], g[1].layout)
        return a, b, gl.allocate_shared_memory(g[2].dtype, [2, 64, w.BN], g[2].layout)

    @jit
    def tiles(w: gl.constexpr, g):
        return gl.cdiv(g[3], 128) * gl.cdiv(g[4], w.BN)

    @jit
    def place(w: gl.constexpr, g, t, n):
        return grouped(t, gl.cdiv(g[3], 128), gl.cdiv(g[4], w.BN), w.group)

    @jit
    def steps(w: gl.constexpr, g, at):
        return gl.cdiv(g[5], 128)

    @jit
    def load(w: gl.constexpr, g, at, k, room, slot, bar):
        mbarrier.expect(bar, 2 * g[0].block_type.nbytes + g[1].block_type.nbytes)
        for half in gl.static_range(2):
            corner = [at[0] * 128 + half * 64, k * 128]
            tma.async_copy_global_to_shared(g[0], corner, bar, room[0].index(2 * slot + half))
        tma.async_copy_global_to_shared(g[1], [at[1] * w.BN, k * 128], bar, room[1].index(slot))

    @jit
    def product(w: gl.constexpr, part: gl.constexpr, acc, room, slot, use_acc):
        """The last one has ended, this one is in flight."""
        b = room[1].index(slot).permute((1, 0))
        made = warpgroup_mma(room[0].index(2 * slot + part), b, acc, use_acc=use_acc, is_async=True)
        return warpgroup_mma_wait(1, (made,))

    @jit
    def first(w: gl.constexpr, g, at, part: gl.constexpr, room, slot):
        layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, w.BN, 32])
        return w.product(w, part, gl.zeros([64, w.BN], gl.float32, layout), room, slot, False)

    @jit
    def step(w: gl.constexpr, g, at, part: gl.constexpr, k, acc, room, slot, is_head: gl.constexpr):
        return w.product(w, part, acc, room, slot, True)

    @jit
    def last(w: gl.constexpr, g, at, part: gl.constexpr, acc, room, slot):
        return warpgroup_mma_wait(0, (acc,)) * (gl.load(g[6]) * gl.load(g[7]))

    @jit
    def finish(w: gl.constexpr, g, at, part: gl.constexpr, acc, room):
        tma.store_wait(0)
        room[2].index(part).store(acc.to(g[2].dtype))
        fence_async_shared()
        corner = [at[0] * 128 + part * 64, at[1] * w.BN]
        tma.async_copy_shared_to_global(g[2], corner, room[2].index(part))


@jit
def fp8_gemm_kernel(a, b, c, M, N, K, scale_a, scale_b, w: gl.constexpr):
    pipeline(w, (a, b, c, M, N, K, scale_a, scale_b))


def reference(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    if scale_a.numel() != 1:
        scale_a = scale_a.repeat_interleave(BLOCK, 1)[:, : a.shape[1]]
    if scale_b.numel() != 1:
        scale_b = scale_b.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[: b.shape[0], : b.shape[1]]
    return ((a.float() * scale_a) @ (b.float() * scale_b).T).bfloat16()


@op("fp8_gemm")
def _fp8_gemm(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    a, b = (x if can_be_described(x) and x.stride(1) == 1 else x.contiguous() for x in (a, b))
    if not (runs_on_hopper(a, b) and can_be_described(a) and can_be_described(b)):
        return reference(a, b, scale_a, scale_b)
    (m, k), n = a.shape, b.shape[0]
    if _is_torchs(a, b, scale_a, scale_b):
        return _by_torch(a, b, scale_a, scale_b)
    c = a.new_empty(m, triton.cdiv(n, 8) * 8, dtype=torch.bfloat16)[:, :n]  # rows begin at 16 bytes
    if _is_one(scale_a, scale_b):
        work = choose(m, n, k, multiprocessors(a))
        tiles = triton.cdiv(m, 128) * triton.cdiv(n, work.BN)
        blocks = describe(a, [64, 128]), describe(b, [work.BN, 128]), describe(c, [64, work.BN])
        given = (*blocks, m, n, k, scale_a, scale_b)
        launch(fp8_gemm_kernel, min(tiles, multiprocessors(a)), given, work, a)
    else:
        multiply_blocks(a, b, scale_a, scale_b, c)
    return c.contiguous()


def _is_torchs(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> bool:
    """Where the sides are multiples of what torch asks for, and scales are of fours of rows and along K, as
    which cuBLAS reads them: else it reads what lies behind, and torch does not say so."""
    per_tensor = _is_one(scale_a, scale_b)
    (m, k), n = a.shape, b.shape[0]
    if n % 16 or k % 16 or not (per_tensor or m % 4 == n % BLOCK == k % (4 * BLOCK) == 0):
        return False
    return is_torchs("fp8_gemm", "one scale" if per_tensor else "blocks", a.device, m=m, n=n, k=k)


def _by_torch(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    """Scales of blocks have to lie step by step; sums of one scale stay in the tensor core, as here."""
    if _is_one(scale_a, scale_b):
        scales = scale_a.view(()), scale_b.view(())
        return torch._scaled_mm(a, b.T, *scales, out_dtype=torch.bfloat16, use_fast_accum=True)
    scales = aligned(scale_a.T.contiguous()).T, aligned(scale_b.contiguous()).T
    return torch._scaled_mm(a, b.T, *scales, out_dtype=torch.bfloat16)


@_fp8_gemm.register_fake
def _(a, b, scale_a, scale_b):
    return a.new_empty(a.shape[0], b.shape[0], dtype=torch.bfloat16)


@functools.lru_cache(maxsize=4096)
def choose(m: int, n: int, k: int, processors: int) -> Fp8Gemm:
    _, width = tile_that_ends_first(TILES, m, n, triton.cdiv(k, 128), processors)
    return Fp8Gemm(stages=STAGES[width], BN=width)


def _is_one(scale_a: torch.Tensor, scale_b: torch.Tensor) -> bool:
    return scale_a.numel() == scale_b.numel() == 1


def fp8_gemm(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    """(a * scale_a) @ (b * scale_b)^T in bf16, with a (M, K) and b (N, K) in float8_e4m3fn.

    Args:
        scale_a: float32, one number, or (M, K / 128).
        scale_b: float32, one number, or (N / 128, K / 128); of the same kind.
    """
    _check(a, b, scale_a, scale_b)
    if _is_one(scale_a, scale_b):
        scale_a, scale_b = scale_a.reshape(1, 1), scale_b.reshape(1, 1)
    if not a.is_cuda or 0 in (*a.shape, *b.shape):
        return reference(a, b, scale_a, scale_b)
    return _fp8_gemm(a, b, scale_a, scale_b)


def _check(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> None:
    need_dtype(a, b, of=(torch.float8_e4m3fn,))
    need_dtype(scale_a, scale_b, of=(torch.float32,))
    need_one_device(a, b, scale_a, scale_b)
    need_few(a, b)
    if not (a.dim() == b.dim() == 2 and a.shape[1] == b.shape[1]):
        raise Unsupported(f"{list(a.shape)} and {list(b.shape)} are no product: (M, K) and (N, K) are")
    (m, k), n = a.shape, b.shape[0]
    if m * n > MOST_ELEMENTS:
        raise Unsupported(f"a result of {m} x {n} has more than 2^31 - 1 elements: split it")
    if torch.is_grad_enabled() and any(x.requires_grad for x in (a, b, scale_a, scale_b)):
        raise Unsupported("there is no backward: detach what needs gradients")
    steps = triton.cdiv(k, BLOCK)
    wanted = (m, steps), (triton.cdiv(n, BLOCK), steps)
    if not _is_one(scale_a, scale_b) and (scale_a.shape, scale_b.shape) != wanted:
        given = f"scales of {list(scale_a.shape)} and {list(scale_b.shape)}"
        raise Unsupported(f"{given}: want one number each, or {list(wanted[0])} and {list(wanted[1])}")


def inputs(m: int, n: int, k: int, per_tensor: bool, device: str) -> tuple[torch.Tensor, ...]:
    """Two matrices of normal numbers, each divided by scales that make its largest entries e4m3's."""
    a, b = (torch.randn(rows, k, device=device) for rows in (m, n))
    (a, scale_a), (b, scale_b) = (
        (_divided(a, m, k), _divided(b, n, k))
        if per_tensor
        else (_divided(a, 1, BLOCK), _divided(b, BLOCK, BLOCK))
    )
    return a, b, scale_a, scale_b


def _divided(x: torch.Tensor, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """In e4m3, and the scales of its blocks."""
    height, width = x.shape
    x = pad(x, (0, -width % columns, 0, -height % rows))
    blocks = x.view(x.shape[0] // rows, rows, x.shape[1] // columns, columns)
    scale = blocks.abs().amax((1, 3), keepdim=True) / LARGEST
    divided = (blocks / scale).view(x.shape)[:height, :width]
    return divided.contiguous().to(torch.float8_e4m3fn), scale[:, 0, :, 0].contiguous()


def cost(m: int, n: int, k: int, per_tensor: bool) -> Cost:
    steps = triton.cdiv(k, BLOCK)
    scales = 2 if per_tensor else (m + triton.cdiv(n, BLOCK)) * steps
    return Cost(m * k + n * k + 2 * m * n + 4 * scales, 2 * m * n * k)


ENTRY = Kernel(
    name="fp8_gemm",
    formula="(A * scale_a) @ (B * scale_b)^T",
    run=fp8_gemm,
    reference=reference,
    inputs=inputs,
    cases=(
        {"m": 256, "n": 256, "k": 256, "per_tensor": False},
        {"m": 300, "n": 200, "k": 528, "per_tensor": False},
        {"m": 130, "n": 333, "k": 128, "per_tensor": True},
        {"m": 64, "n": 136, "k": 1040, "per_tensor": True},
    ),
    sizes=tuple(
        {"m": n, "n": n, "k": n, "per_tensor": per_tensor}
        for per_tensor in (False, True)
        for n in (1024, 2048, 4096, 8192, 16384)
    ),
    cost=cost,
)
