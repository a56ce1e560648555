"""O = act(A) * B, the middle of a gated feed-forward layer: forward and backward.

swiglu: act(a) = silu(a) = a * sigmoid(a).
geglu: act(a) = gelu_tanh(a) = a * sigmoid(2 sqrt(2 / pi) (a + 0.044715 a^3)).
Both are a * s with s = sigmoid(z(a)), so that dA = dO * B * s (1 + a (1 - s) z'(a)) and dB = dO * act(A).

A and B are two tensors of one shape, or the halves of one tensor (..., 2n); bf16, fp16 or float32, float32
inside. A tile is 4096 elements; tensors without gaps are read as one long row. Where A and B came as one
tensor, so do their gradients. Not covered: the exact (erf) gelu, A and B that broadcast, and gradients of
gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch.nn import functional

from assay.tiles.kernel import Cost, Kernel, Unsupported, launches, need_dtype, need_few
from assay.tiles.launch import again, call_of, start
from assay.tiles.op import op
from assay.tiles.rows import as_rows, dense_rows

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
TILE = 4096
WARPS = 8
LINEAR = tl.constexpr(1.5957691216057308)
"""2 sqrt(2 / pi)."""
CUBIC = tl.constexpr(0.07135481627260025)
"""0.044715 of that."""


@triton.jit
def _place(rows, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    """The rows and columns of this program's tile, and which of them there are."""
    across = (n - 1) // COLS + 1  # n + COLS may not fit in 32 bits
    tile = tl.program_id(0)
    row = (tile // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = (tile % across).to(tl.int64) * COLS + tl.arange(0, COLS)[None, :]
    return row, column, (row < rows) & (column < n)


@triton.jit
def _gate(a, IS_GELU: tl.constexpr):
    """s and z'."""
    z, slope = a, 1.0
    if IS_GELU:
        square = a * a
        z, slope = a * (LINEAR + CUBIC * square), LINEAR + 3 * CUBIC * square
    return tl.sigmoid(z), slope


@triton.jit
def gated_kernel(
    a,
    b,
    out,
    a_step,
    b_step,
    out_step,
    rows,
    n,
    IS_GELU: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    row, column, inside = _place(rows, n, ROWS, COLS)
    x = tl.load(a + row * a_step + column, inside).to(tl.float32)
    y = tl.load(b + row * b_step + column, inside).to(tl.float32)
    s, _ = _gate(x, IS_GELU)
    tl.store(out + row * out_step + column, x * s * y, inside)


@triton.jit
def gated_backward_kernel(
    grad, a, b, da, db, grad_step, a_step, b_step, da_step, db_step, rows, n,
    IS_GELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    row, column, inside = _place(rows, n, ROWS, COLS)
    g = tl.load(grad + row * grad_step + column, inside).to(tl.float32)
    x = tl.load(a + row * a_step + column, inside).to(tl.float32)
    y = tl.load(b + row * b_step + column, inside).to(tl.float32)
    s, slope = _gate(x, IS_GELU)
    tl.store(da + row * da_step + column, g * y * s * (1 + x * (1 - s) * slope), inside)
    tl.store(db + row * db_step + column, g * x * s, inside)


def reference(a: torch.Tensor, b: torch.Tensor | None = None, *, is_gelu: bool) -> torch.Tensor:
    left, right = _halves(a, b)
    act = functional.gelu(left.float(), approximate="tanh") if is_gelu else functional.silu(left.float())
    return (act * right.float()).to(a.dtype)


def _halves(a: torch.Tensor, b: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    if b is not None:
        return a, b
    n = a.shape[-1] // 2
    return a[..., :n], a[..., n:]


def _launch(kernel: Any, tensors: list[torch.Tensor], is_gelu: bool) -> None:
    flat = [dense_rows(as_rows(tensor)) for tensor in tensors]
    call = call_of(kernel, *flat, is_gelu)
    if again(call, flat[0]):
        return
    rows, n = flat[0].shape
    if all(tensor.is_contiguous() for tensor in flat):
        rows, n = 1, rows * n
    cols = min(triton.next_power_of_2(n), TILE if rows == 1 else 1024)
    high = TILE // cols if rows > 1 else 1
    grid = (-(-rows // high) * -(-n // cols),)
    arguments = (*flat, *(tensor.stride(0) for tensor in flat), rows, n)
    start(kernel, grid, arguments, flat[0], call, IS_GELU=is_gelu, ROWS=high, COLS=cols, num_warps=WARPS)


@op("gated", has_backward=True)
def gated(a: torch.Tensor, b: torch.Tensor | None, is_gelu: bool) -> torch.Tensor:
    left, right = _halves(a, b)
    out = a.new_empty(left.shape)
    if out.numel():
        _launch(gated_kernel, [left, right, out], is_gelu)
    return out


@gated.register_fake
def _(a: torch.Tensor, b: torch.Tensor | None, is_gelu: bool) -> torch.Tensor:
    return a.new_empty(_halves(a, b)[0].shape)


@op("gated_backward")
def gated_backward(
    grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor | None, is_gelu: bool
) -> torch.Tensor:
    """One tensor: like `a` where that has both halves, else dA and dB stacked."""
    left, right = _halves(a, b)
    both = a.new_empty(a.shape if b is None else (2, *a.shape))
    da, db = _halves(both, None) if b is None else both.unbind()
    if both.numel():
        _launch(gated_backward_kernel, [grad, left, right, da, db], is_gelu)
    return both


@gated_backward.register_fake
def _(grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor | None, is_gelu: bool) -> torch.Tensor:
    return a.new_empty(a.shape if b is None else (2, *a.shape))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    a, b, ctx.is_gelu = inputs
    ctx.save_for_backward(a, b)


def _back(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    a, b = ctx.saved_tensors
    both = gated_backward(grad, a, b, ctx.is_gelu)
    return (both, None, None) if b is None else (both[0], both[1], None)


gated.register_autograd(_back, setup_context=_keep)


def _checked(a: torch.Tensor, b: torch.Tensor | None, is_gelu: bool) -> torch.Tensor:
    given = [a] if b is None else [a, b]
    need_dtype(*given, of=DTYPES)
    need_few(*given)
    if a.dim() == 0:
        raise Unsupported("a tensor without dimensions: give (..., n)")
    if b is None and a.shape[-1] % 2:
        raise Unsupported(f"{a.shape[-1]} columns have no halves: give (..., 2n), or two tensors")
    if b is not None and a.shape != b.shape:
        raise Unsupported(f"shapes differ: {tuple(a.shape)} and {tuple(b.shape)}")
    return gated(a, b, is_gelu) if launches(*given) else reference(a, b, is_gelu=is_gelu)


def swiglu(a: torch.Tensor, b: torch.Tensor | None = None) -> torch.Tensor:
    """silu(a) * b; where b is not given, a is (..., 2n) and b its second half."""
    return _checked(a, b, False)


def geglu(a: torch.Tensor, b: torch.Tensor | None = None) -> torch.Tensor:
    """gelu_tanh(a) * b; where b is not given, a is (..., 2n) and b its second half."""
    return _checked(a, b, True)


def inputs(
    *,
    tokens: int,
    width: int,
    is_packed: bool = True,
    dtype: torch.dtype = torch.bfloat16,
    device: str = "cuda",
) -> tuple[torch.Tensor, ...]:
    if is_packed:
        return (torch.randn(tokens, 2 * width, device=device).to(dtype),)
    return tuple(torch.randn(tokens, width, device=device).to(dtype) for _ in range(2))


def cost(
    *, tokens: int, width: int, is_packed: bool = True, dtype: torch.dtype = torch.bfloat16, act_flops: int
) -> Cost:
    """Both halves in, one out, whether packed or not."""
    return Cost(size_bytes=3 * tokens * width * dtype.itemsize, flops=(act_flops + 1) * tokens * width)


CASES = (
    {"tokens": 3, "width": 64},
    {"tokens": 17, "width": 100},
    {"tokens": 2, "width": 2500},
    {"tokens": 5, "width": 77, "is_packed": False},
    {"tokens": 1, "width": 1, "is_packed": False},
)
SIZES = (
    {"tokens": 8192, "width": 14_336},
    {"tokens": 8192, "width": 11_008},
    {"tokens": 16_384, "width": 4096, "is_packed": False},
    {"tokens": 64, "width": 14_336},
)


def _entry(
    name: str, formula: str, run: Callable[..., torch.Tensor], is_gelu: bool, act_flops: int
) -> Kernel:
    return Kernel(
        name=name,
        formula=formula,
        run=run,
        reference=partial(reference, is_gelu=is_gelu),
        inputs=inputs,
        cases=CASES,
        sizes=SIZES,
        cost=partial(cost, act_flops=act_flops),
    )


ENTRIES = (
    _entry("swiglu", "O = silu(A) * B", swiglu, False, 4),
    _entry("geglu", "O = gelu_tanh(A) * B", geglu, True, 8),
)
