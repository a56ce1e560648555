"""C = epilogue(A @ B): bf16 or fp16 in, float32 inside.

A is (M, K); B is (K, N), or (N, K) as linear layers keep it. Tiles of 128 rows and 256, 128 or 64 columns,
64 deep; two consumers of 64 rows each. The epilogue adds a bias, applies an activation, adds a
residual, in float32.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
from torch.nn.functional import gelu, silu

from assay.tiles.choice import bits, is_torchs
from assay.tiles.hopper import fence_async_shared, gl, jit, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from assay.tiles.kernel import Cost, Kernel, Unsupported, need_alike, needs_gradients
from assay.tiles.kernels import plain
from assay.tiles.launch import (
    again,
    call_of,
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

ACTIVATIONS = {
    "": lambda x: x,
    "relu": torch.relu,
    "silu": silu,
    "gelu": lambda x: gelu(x, approximate="tanh"),
}
STAGES = {256: 3, 128: 5, 64: 6}
TILES = ((128, 256, 1.0, 6.0), (128, 128, 0.52, 2.5), (128, 64, 0.3, 1.7))


@dataclass(frozen=True)
class Gemm(Work):
    stages: int = 3
    BN: int = 256
    BK: int = 64
    group: int = 16
    """Rows of tiles that are walked together, so that their operands stay in the L2 cache."""
    transposed: bool = False
    """B is given as (N, K)."""
    has_bias: bool = False
    has_residual: bool = False
    activation: str = ""

    @jit
    def room(w: gl.constexpr, g):
        a = gl.allocate_shared_memory(g[0].dtype, [2 * w.stages, 64, w.BK], g[0].layout)
        b = gl.allocate_shared_memory(g[1].dtype, [w.stages] + g[1].block_type.shape, g[1].layout)
        return a, b, gl.allocate_shared_memory(g[2].dtype, [2, 64, w.BN], g[2].layout)

    @jit
    def tiles(w: gl.constexpr, g):
        return gl.cdiv(g[3], 128) * gl.cdiv(g[4], w.BN)

    @jit
    def place(w: gl.constexpr, g, t, n):
        return grouped(t, gl.cdiv(g[3], 128), gl.cdiv(g[4], w.BN), w.group)

    @jit
    def steps(w: gl.constexpr, g, at):
        return gl.cdiv(g[5], w.BK)

    @jit
    def load(w: gl.constexpr, g, at, k, room, slot, bar):
        mbarrier.expect(bar, 2 * g[0].block_type.nbytes + g[1].block_type.nbytes)
        for half in gl.static_range(2):
            corner = [at[0] * 128 + half * 64, k * w.BK]
            tma.async_copy_global_to_shared(g[0], corner, bar, room[0].index(2 * slot + half))
        if w.transposed:
            tma.async_copy_global_to_shared(g[1], [at[1] * w.BN, k * w.BK], bar, room[1].index(slot))
        else:
            tma.async_copy_global_to_shared(g[1], [k * w.BK, at[1] * w.BN], bar, room[1].index(slot))

    @jit
    def product(w: gl.constexpr, part: gl.constexpr, acc, room, slot, use_acc):
        b = room[1].index(slot)
        if w.transposed:
            b = b.permute((1, 0))
        acc = warpgroup_mma(room[0].index(2 * slot + part), b, acc, use_acc=use_acc, is_async=True)
        return warpgroup_mma_wait(1, (acc,))  # which leaves this one in flight

    @jit
    def first(w: gl.constexpr, g, at, part: gl.constexpr, room, slot):
        layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, w.BN, 16])
        return w.product(w, part, gl.zeros([64, w.BN], gl.float32, layout), room, slot, False)

    @jit
    def step(w: gl.constexpr, g, at, part: gl.constexpr, k, acc, room, slot, is_head: gl.constexpr):
        return w.product(w, part, acc, room, slot, True)

    @jit
    def last(w: gl.constexpr, g, at, part: gl.constexpr, acc, room, slot):
        return warpgroup_mma_wait(0, (acc,))

    @jit
    def finish(w: gl.constexpr, g, at, part: gl.constexpr, acc, room):
        row = at[0] * 128 + part * 64
        acc = _epilogue(w, g, row, at[1] * w.BN, acc)
        tma.store_wait(0)
        room[2].index(part).store(acc.to(g[2].dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(g[2], [row, at[1] * w.BN], room[2].index(part))


@jit
def _epilogue(w: gl.constexpr, g, row, column, acc):
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, w.BN, 16])
    n = column + gl.arange(0, w.BN, gl.SliceLayout(0, layout))
    if w.has_bias:
        acc += gl.expand_dims(gl.load(g[6] + n, n < g[4], other=0.0).to(gl.float32), 0)
    if w.activation == "relu":
        acc = gl.where(acc < 0.0, 0.0, acc)  # which keeps NaN
    if w.activation == "silu":
        acc = acc / (1 + gl.exp2(acc * -1.4426950408889634))
    if w.activation == "gelu":
        acc = acc / (1 + gl.exp2(acc * (-2.302208198144325 - 0.1029432396800475 * acc * acc)))
    if w.has_residual:
        m = gl.expand_dims(row + gl.arange(0, 64, gl.SliceLayout(1, layout)), 1)
        n = gl.expand_dims(n, 0)
        acc += gl.load(g[7] + m * g[4] + n, (m < g[3]) & (n < g[4]), other=0.0).to(gl.float32)
    return acc


@jit
def gemm_kernel(a, b, c, M, N, K, bias, residual, w: gl.constexpr):
    pipeline(w, (a, b, c, M, N, K, bias, residual))


def reference(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    activation: str = "",
) -> torch.Tensor:
    return _finished(a.float() @ b.float(), bias, residual, activation).to(a.dtype)


def _finished(
    c: torch.Tensor, bias: torch.Tensor | None, residual: torch.Tensor | None, activation: str
) -> torch.Tensor:
    c = ACTIVATIONS[activation](c.float() if bias is None else c.float() + bias.float())
    return c if residual is None else c + residual.float()


@op("gemm", has_backward=True)
def _gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: str,
) -> torch.Tensor:
    """Where rows do not begin at multiples of 16 bytes, or torch is faster, by way of torch."""
    (m, k), (_, n) = a.shape, b.shape
    is_copied = a.stride()[1] != 1
    if is_copied:
        if _is_torchs(a, b, bias, residual, activation):
            return _by_torch(a, b, bias, residual, activation)
        a = a.contiguous()
    c = a.new_empty(m, n) if n % 8 == 0 else a.new_empty(m, n + -n % 8)[:, :n]
    call = call_of(gemm_kernel, a, b, bias, residual, activation, c.data_ptr())
    if again(call, a):
        return c.contiguous()
    is_fit = a.stride()[1] == 1 and can_be_described(a) and can_be_described(b)
    if not is_fit or (not is_copied and _is_torchs(a, b, bias, residual, activation)):
        return _by_torch(a, b, bias, residual, activation)
    processors = multiprocessors(a)
    work = choose(m, n, k, processors, b.stride()[0] == 1, bias is not None, residual is not None, activation)
    given, block = (b.T, (work.BN, work.BK)) if work.transposed else (b, (work.BK, work.BN))
    described = describe(a, (64, work.BK)), describe(given, block), describe(c, (64, work.BN))
    arguments = (*described, m, n, k, c if bias is None else bias, c if residual is None else residual)
    tiles = -(-m // 128) * -(-n // work.BN)
    launch(gemm_kernel, min(tiles, processors), arguments, work, a, call)
    return c.contiguous()


def _is_torchs(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: str,
) -> bool:
    """Tells apart how each side lies, and what comes after the product."""
    left = "rows" if a.stride()[1] == 1 else "columns"
    right = "columns" if b.stride()[0] == 1 else "rows"
    ends = ("" if bias is None else " bias") + (activation and f" {activation}")
    kind = f"{bits(a)} {left} by {right}{ends}{'' if residual is None else ' residual'}"
    return is_torchs("gemm", kind, a.device, m=a.shape[0], n=b.shape[1], k=a.shape[1])


def _by_torch(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: str,
) -> torch.Tensor:
    if activation or residual is not None:
        return _finished(a @ b, bias, residual, activation).to(a.dtype)
    return a @ b if bias is None else torch.addmm(bias, a, b)


@_gemm.register_fake
def _(a, b, bias, residual, activation):
    return a.new_empty(a.shape[0], b.shape[1])


@functools.lru_cache(maxsize=4096)
def choose(
    m: int,
    n: int,
    k: int,
    processors: int,
    is_transposed: bool = False,
    has_bias: bool = False,
    has_residual: bool = False,
    activation: str = "",
) -> Gemm:
    """A residual takes the registers that the widest tiles need."""
    tiles = TILES[1:] if has_residual else TILES
    _, width = tile_that_ends_first(tiles, m, n, -(-k // 64), processors)
    return Gemm(
        stages=STAGES[width],
        BN=width,
        transposed=is_transposed,
        has_bias=has_bias,
        has_residual=has_residual,
        activation=activation,
    )


def _keep(ctx, inputs, output) -> None:
    a, b, bias, residual, ctx.activation = inputs
    ctx.save_for_backward(a, b, bias)
    ctx.has_residual = residual is not None


def _let_through(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: str, grad: torch.Tensor
) -> torch.Tensor:
    """By an activation; where gradients are recorded, so is this, for second ones."""
    is_recorded = torch.is_grad_enabled()
    with torch.enable_grad():
        before = gemm(a, b, bias).float()
        if not (is_recorded and before.requires_grad):
            before = before.detach().requires_grad_()
        after = ACTIVATIONS[activation](before)
        (through,) = torch.autograd.grad(after, before, grad.float(), create_graph=is_recorded)
    return through.to(a.dtype)


def _backward(ctx, grad):
    """The two products; what an activation lets through is computed again, from float32 sums."""
    a, b, bias = ctx.saved_tensors
    through = _let_through(a, b, bias, ctx.activation, grad) if ctx.activation else grad
    of_a, of_b = gemm(through, b.T), gemm(a.T, through)
    of_bias = through.float().sum(0).to(a.dtype) if bias is not None else None
    return of_a, of_b, of_bias, grad if ctx.has_residual else None, None


_gemm.register_autograd(_backward, setup_context=_keep)


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    activation: str = "",
) -> torch.Tensor:
    """activation(a @ b + bias) + residual, with a (..., K), b (K, N), bias (N), residual (..., N).

    Where this is no Hopper, plain Triton answers, and says so. Where rows do not begin at multiples of 16
    bytes, gradients are needed on another GPU, or torch was measured to be faster, it is torch's own product.
    """
    _check(a, b, bias, residual, activation)
    if not a.is_cuda:
        return reference(a, b, bias, residual, activation)
    rows = a if a.dim() == 2 else a.reshape(math.prod(a.shape[:-1]), a.shape[-1])
    rows = rows if 1 in rows.stride() else rows.contiguous()
    b = b if 1 in b.stride() else b.contiguous()
    is_hopper = runs_on_hopper(rows, b)
    is_left = not is_hopper and needs_gradients(a, b, bias, residual)
    if is_left or rows.numel() == 0 or b.numel() == 0:
        return _finished(a @ b, bias, residual, activation).to(a.dtype)
    flat = None if residual is None else residual.reshape(rows.shape[0], -1).contiguous()
    product = _gemm if is_hopper else plain.told("gemm", plain.plain_gemm, a.device)
    c = product(rows, b, None if bias is None else bias.contiguous(), flat, activation)
    return c if a.dim() == 2 else c.view(*a.shape[:-1], -1)


def _check(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: str,
) -> None:
    given = (a, b) if bias is residual is None else [t for t in (a, b, bias, residual) if t is not None]
    need_alike(*given, of=(torch.bfloat16, torch.float16))
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        names = ", ".join(filter(None, ACTIVATIONS))
        raise Unsupported(f"there is no activation {activation!r}: use one of {names}")
    if b.dim() != 2 or a.dim() < 1 or a.shape[-1] != b.shape[0]:
        raise Unsupported(f"{list(a.shape)} @ {list(b.shape)} is no product: (..., K) @ (K, N) is")
    columns = b.shape[1]
    if bias is not None and bias.shape != (columns,):
        raise Unsupported(f"a bias of {list(bias.shape)} for {columns} columns")
    if residual is not None and residual.shape != (*a.shape[:-1], columns):
        raise Unsupported(f"a residual of {list(residual.shape)} for {[*a.shape[:-1], columns]}")


def inputs(m: int, n: int, k: int, device: str) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(shape, device=device).bfloat16() for shape in ((m, k), (k, n)))


def cost(m: int, n: int, k: int) -> Cost:
    return Cost(2 * (m * k + k * n + m * n), 2 * m * n * k)


ENTRY = Kernel(
    name="gemm",
    formula="activation(A @ B + bias) + residual",
    run=gemm,
    reference=reference,
    inputs=inputs,
    cases=({"m": 256, "n": 256, "k": 256}, {"m": 300, "n": 200, "k": 520}, {"m": 64, "n": 128, "k": 1000}),
    sizes=tuple({"m": n, "n": n, "k": n} for n in (1024, 2048, 4096, 8192, 16384)),
    cost=cost,
)
