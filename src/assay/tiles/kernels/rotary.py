"""Rotary position embedding, and q, k and v laid out for attention: forward and backward.

For each head of q and k, position s and d < D/2, with h = D/2:
o[d] = x[d] cos[s, d] - x[d + h] sin[s, d] and o[d + h] = x[d + h] cos[s, d] + x[d] sin[s, d]; v is copied.
The backward is the same with -sin, from the outputs' layout to the inputs'.

In: one packed tensor (batch, sequence, heads + 2 kv_heads, D), or q (batch, sequence, heads, D) and
k (batch, sequence, kv_heads, D); bf16, fp16 or float32, float32 inside, any strides. Out: (batch, heads,
sequence, D) each, without gaps. Tables cos and sin are (sequence, D/2) float32: slice them for later
positions. A program turns a few positions of several heads, so that it reads its part of the tables once;
some of those heads at once, so that they need not wait for each other. Not covered: the interleaved
convention, heads turned in part, positions that differ between batch entries, gradients of the tables or of
gradients, D over 512.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from assay.tiles.kernel import Cost, Kernel, Unsupported, launches, need_dtype, need_few
from assay.tiles.launch import start
from assay.tiles.op import op

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
MOST_D = 512
TILE = 512
"""Positions times half of D."""
TOGETHER = 4
"""Heads that are turned at once."""
WARPS = 4
MANY_TILES = 32_768
"""With so many, each program can take twice as many heads and all multiprocessors still have work."""


@triton.jit
def _turn(
    source, target, x_steps, o_steps, batch, s, d, first, last, c, w, inside,
    HALF_D: tl.constexpr, TOGETHER: tl.constexpr,
):  # fmt: skip
    """Heads from `first` up to `last`, some at once; only copied where there is no cosine."""
    head = first + tl.arange(0, TOGETHER)[:, None, None]
    x = source + batch * x_steps[0] + head.to(tl.int64) * x_steps[2] + s * x_steps[1] + d
    o = target + batch * o_steps[0] + head.to(tl.int64) * o_steps[2] + s * o_steps[1] + d
    together = tl.full((), TOGETHER, tl.int64)
    for _ in range(first, last, TOGETHER):
        is_real = inside & (head < last)
        left = tl.load(x, is_real)
        right = tl.load(x + HALF_D, is_real)
        if c is not None:
            a, b = left.to(tl.float32), right.to(tl.float32)
            left, right = a * c - b * w, b * c + a * w
        tl.store(o, left, is_real)
        tl.store(o + HALF_D, right, is_real)
        x += together * x_steps[2]
        o += together * o_steps[2]
        head += TOGETHER


@triton.jit
def rotary_kernel(
    sources, targets, x_steps, o_steps, heads, cos, sin, sequence,
    SIGN: tl.constexpr, HALF_D: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, HEADS: tl.constexpr,
    TOGETHER: tl.constexpr,
):  # fmt: skip
    """Sources and targets are q, k and, where there is one, v; steps go along batch, sequence and heads."""
    blocks = tl.cdiv(sequence, ROWS)
    batch = (tl.program_id(0) // blocks).to(tl.int64)
    s = (tl.program_id(0) % blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)[None, :, None]
    d = tl.arange(0, COLS)[None, None, :]
    inside = (s < sequence) & (d < HALF_D)
    c = tl.load(cos + s * HALF_D + d, inside)
    w = SIGN * tl.load(sin + s * HALF_D + d, inside)
    first = tl.program_id(1) * HEADS
    for part in tl.static_range(len(heads)):
        if (first >= 0) & (first < heads[part]):
            last = tl.minimum(first + HEADS, heads[part])
            _turn(
                sources[part], targets[part], x_steps[part], o_steps[part], batch, s, d, first, last,
                c if part < 2 else None, w, inside, HALF_D, TOGETHER,
            )  # fmt: skip
        first -= tl.cdiv(heads[part], HEADS) * HEADS


def reference(
    q: torch.Tensor, k: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor, kv_heads: int = 0
) -> tuple[torch.Tensor, ...]:
    parts = [part.transpose(1, 2) for part in _parts([q] if k is None else [q, k], kv_heads)]
    made = []
    for part in parts[:2]:
        left, right = part.float().chunk(2, dim=-1)
        turned = torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)
        made.append(turned.to(q.dtype))
    return (*made, *(part.clone(memory_format=torch.contiguous_format) for part in parts[2:]))


def _parts(tensors: list[torch.Tensor], kv_heads: int) -> list[torch.Tensor]:
    """q, k and, where they came packed, v."""
    if len(tensors) == 2:
        return tensors
    counts = [tensors[0].shape[2] - 2 * kv_heads, kv_heads, kv_heads]
    return list(tensors[0].split(counts, dim=2))


def _launch(
    sources: list[torch.Tensor], targets: list[torch.Tensor], cos: torch.Tensor, sin: torch.Tensor, sign: int
) -> None:
    """From one layout to another; both are seen as (batch, sequence, heads, D)."""
    sources = [source if source.stride(3) == 1 else source.contiguous() for source in sources]
    batch, sequence, _, d = sources[0].shape
    cols = triton.next_power_of_2(d // 2)
    rows = max(TILE // cols, 1)
    heads = tuple(source.shape[2] for source in sources)
    tiles = batch * triton.cdiv(sequence, rows)
    each = 2 * TOGETHER if tiles * sum(heads) >= MANY_TILES else TOGETHER
    grid = (tiles, sum(triton.cdiv(n, each) for n in heads))
    if 0 in grid:
        return
    steps = (tuple(tensor.stride()[:3] for tensor in tensors) for tensors in (sources, targets))
    start(
        rotary_kernel, grid, (tuple(sources), tuple(targets), *steps, heads, cos, sin, sequence), cos,
        SIGN=sign, HALF_D=d // 2, ROWS=rows, COLS=cols, HEADS=each, TOGETHER=TOGETHER, num_warps=WARPS,
    )  # fmt: skip


@op("rotary", has_backward=True)
def _op(
    tensors: list[torch.Tensor], cos: torch.Tensor, sin: torch.Tensor, kv_heads: int
) -> list[torch.Tensor]:
    made = _op_shapes(tensors, cos, sin, kv_heads)
    targets = [target.transpose(1, 2) for target in made]
    _launch(_parts(tensors, kv_heads), targets, cos.contiguous(), sin.contiguous(), 1)
    return made


@_op.register_fake
def _op_shapes(
    tensors: list[torch.Tensor], cos: torch.Tensor, sin: torch.Tensor, kv_heads: int
) -> list[torch.Tensor]:
    shapes = [part.transpose(1, 2).shape for part in _parts(tensors, kv_heads)]
    return [cos.new_empty(shape, dtype=tensors[0].dtype) for shape in shapes]


@op("rotary_backward")
def _backward_op(grads: list[torch.Tensor], cos: torch.Tensor, sin: torch.Tensor) -> list[torch.Tensor]:
    """Packed where the three of q, k and v are given."""
    made = _backward_shapes(grads, cos, sin)
    _launch(
        [grad.transpose(1, 2) for grad in grads],
        _parts(made, grads[1].shape[1]),
        cos.contiguous(),
        sin.contiguous(),
        -1,
    )
    return made


@_backward_op.register_fake
def _backward_shapes(grads: list[torch.Tensor], cos: torch.Tensor, sin: torch.Tensor) -> list[torch.Tensor]:
    batch, _, sequence, d = grads[0].shape
    heads = [grad.shape[1] for grad in grads]
    counts = heads if len(heads) == 2 else [sum(heads)]
    return [grads[0].new_empty((batch, sequence, count, d)) for count in counts]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(inputs[1], inputs[2])


def _back(ctx: Any, grads: list[torch.Tensor]) -> tuple[list[torch.Tensor] | None, ...]:
    return _backward_op(grads, *ctx.saved_tensors), None, None, None


_op.register_autograd(_back, setup_context=_keep)


def _check(tensors: list[torch.Tensor], cos: torch.Tensor, sin: torch.Tensor, kv_heads: int) -> None:
    need_dtype(*tensors, of=DTYPES)
    need_dtype(cos, sin, of=(torch.float32,))
    need_few(*tensors, cos)
    first = tensors[0]
    for tensor in tensors:
        if tensor.dim() != 4 or (*tensor.shape[:2], tensor.shape[3]) != (*first.shape[:2], first.shape[-1]):
            shapes = " and ".join(str(tuple(each.shape)) for each in tensors)
            raise Unsupported(f"{shapes}: give (batch, sequence, heads, D), alike but for the heads")
    if first.shape[3] % 2 or not 0 < first.shape[3] <= MOST_D:
        raise Unsupported(f"D = {first.shape[3]}: use an even one from 2 to {MOST_D}")
    if len(tensors) == 1 and not 0 < 2 * kv_heads < first.shape[2]:
        raise Unsupported(f"{first.shape[2]} packed heads with kv_heads = {kv_heads}: there is no q, k or v")
    if len(tensors) == 2 and kv_heads not in (0, tensors[1].shape[2]):
        raise Unsupported(f"kv_heads = {kv_heads}, but k has {tensors[1].shape[2]}")
    half = (first.shape[1], first.shape[3] // 2)
    if cos.shape != half or sin.shape != half:
        raise Unsupported(
            f"tables of shape {tuple(cos.shape)} and {tuple(sin.shape)}: give (sequence, D/2) = {half}"
        )
    if cos.requires_grad or sin.requires_grad:
        raise Unsupported("tables have no gradient here: detach them")


def rotary(
    q: torch.Tensor, k: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor, kv_heads: int = 0
) -> tuple[torch.Tensor, ...]:
    """Args:
        q: (batch, sequence, heads, D); where k is None, (batch, sequence, heads + 2 kv_heads, D): q, k and v.

    Returns:
        q and k turned, and v where it was packed with them: (batch, heads, sequence, D) each.
    """
    tensors = [q] if k is None else [q, k]
    _check(tensors, cos, sin, kv_heads)
    if not launches(*tensors, cos, sin):
        return reference(q, k, cos, sin, kv_heads)
    return tuple(_op(tensors, cos, sin, kv_heads))


def inputs(
    *,
    batch: int,
    sequence: int,
    heads: int,
    kv_heads: int,
    d: int,
    is_packed: bool = True,
    dtype: torch.dtype = torch.bfloat16,
    device: str = "cuda",
) -> tuple[torch.Tensor | int | None, ...]:
    rates = 10_000.0 ** (-torch.arange(0, d, 2, device=device) / d)
    angles = torch.outer(torch.arange(sequence, device=device), rates)
    counts = [heads + 2 * kv_heads] if is_packed else [heads, kv_heads]
    made = [torch.randn(batch, sequence, count, d, device=device).to(dtype) for count in counts]
    return made[0], None if is_packed else made[1], angles.cos(), angles.sin(), kv_heads


def cost(
    *,
    batch: int,
    sequence: int,
    heads: int,
    kv_heads: int,
    d: int,
    is_packed: bool = True,
    dtype: torch.dtype = torch.bfloat16,
) -> Cost:
    """All heads in and out, the tables in once."""
    moved = batch * sequence * (heads + (2 if is_packed else 1) * kv_heads) * d
    turned = batch * sequence * (heads + kv_heads) * d
    return Cost(size_bytes=2 * moved * dtype.itemsize + 4 * sequence * d, flops=3 * turned)


ENTRY = Kernel(
    name="rotary",
    formula="o = x cos + turned(x) sin, turned(x) = (-x[D/2:], x[:D/2])",
    run=rotary,
    reference=reference,
    inputs=inputs,
    cases=(
        {"batch": 2, "sequence": 40, "heads": 4, "kv_heads": 2, "d": 64},
        {"batch": 1, "sequence": 19, "heads": 3, "kv_heads": 1, "d": 96},
        {"batch": 2, "sequence": 1, "heads": 2, "kv_heads": 2, "d": 128, "is_packed": False},
        {"batch": 3, "sequence": 17, "heads": 5, "kv_heads": 1, "d": 10, "is_packed": False},
    ),
    sizes=(
        {"batch": 4, "sequence": 4096, "heads": 32, "kv_heads": 8, "d": 128},
        {"batch": 4, "sequence": 4096, "heads": 32, "kv_heads": 32, "d": 64},
        {"batch": 1, "sequence": 32_768, "heads": 32, "kv_heads": 8, "d": 128, "is_packed": False},
        {"batch": 1, "sequence": 2000, "heads": 32, "kv_heads": 8, "d": 128},
    ),
    cost=cost,
)
