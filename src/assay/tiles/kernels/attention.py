"""O = softmax(scale * Q K^T) V for each head: forward, causal or not, grouped queries, any length.

Q and O are (batch * heads, S, D), K and V (batch * kv_heads, T, D), bf16 or fp16; scores and sums are
float32. A tile is 64 queries of a head for each of two or three consumers. A step has a block of keys and the
values of the keys of the step before: while its scores are computed, those values are multiplied. The
first has keys only, the last values only. Causal: query s sees keys up to s + T - S; blocks that it does not
see are not loaded, those it sees in part come first and are the only ones that are masked.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from assay.tiles.choice import bits, is_torchs
from assay.tiles.hopper import fence_async_shared, gl, jit, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from assay.tiles.kernel import Cost, Kernel, Unsupported, need_alike, need_scale, need_switch
from assay.tiles.kernels import plain
from assay.tiles.launch import again, aligned, call_of, describe, launch, multiprocessors, runs_on_hopper
from assay.tiles.op import op
from assay.tiles.pipeline import balanced, grouped, pipeline
from assay.tiles.work import Work

STEPS = {64: {"BN": 128, "stages": 2}, 128: {"BN": 128, "stages": 2}, 256: {"BN": 64, "stages": 2}}
"""What shared memory holds beside the queries, by head size."""
SMALL_HEAD = 64
"""Registers hold three consumers. Causal tiles of as many queries have more to mask: those have two."""
MOST_GRADIENT_SIZE = 128
MOST_HEADS = 65_535
"""Of a whole batch, where they are a grid's second axis: around gradients, on other GPUs, and in torch."""
LOG2_E = math.log2(math.e)
LN_2 = gl.constexpr(math.log(2))
CACHED_BYTES = 12 * 2**20
"""What the L2 cache holds of keys and values beside everything else."""
BALANCED_FROM = 2 * 2**20
"""Bytes of a head's keys from which causal tiles differ so much in length that walking over all heads at once
is worth more."""


@dataclass(frozen=True)
class Attention(Work):
    stages: int = 2
    D: int = 128
    BN: int = 128
    """Keys of a step."""
    is_causal: bool = False
    is_askew: bool = False
    """Causal, and the last queries of a tile do not see the end of a block."""
    holds: ClassVar[bool] = False
    tail: ClassVar[bool] = True

    @property
    def score_layout(self) -> gl.NVMMADistributedLayout:
        return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, self.BN, 16])

    @property
    def layout(self) -> gl.NVMMADistributedLayout:
        """Of sums."""
        return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, self.D, 16])

    @property
    def rows(self) -> int:
        """Queries of a tile."""
        return 64 * self.consumers

    @property
    def entries(self) -> int:
        """Two, if shared memory holds them."""
        return 2 if self.D <= 128 else 1

    @property
    def heads(self) -> int:
        """Blocks that a tile sees in part: those its queries lie in, and one more if they lie askew."""
        return -(-self.rows // self.BN) + self.is_askew if self.is_causal else 1

    @jit
    def room(w: gl.constexpr, g):
        q = gl.allocate_shared_memory(g[0].dtype, [w.consumers * w.entries, 1, 64, w.D], g[0].layout)
        k = gl.allocate_shared_memory(g[1].dtype, [w.stages, 1, w.BN, w.D], g[1].layout)
        v = gl.allocate_shared_memory(g[2].dtype, [w.stages, 1, w.BN, w.D], g[2].layout)
        o = q
        if w.entries == 2:
            o = gl.allocate_shared_memory(g[0].dtype, [w.consumers, 1, 64, w.D], g[0].layout)
        return q, k, v, o

    @jit
    def tiles(w: gl.constexpr, g):
        return gl.cdiv(g[4], w.rows) * g[6]

    @jit
    def place(w: gl.constexpr, g, t, n):
        """Its first query, its head and its entry; heads whose keys and values stay in the cache together,
        and the longest tiles first."""
        blocks = gl.cdiv(g[4], w.rows)
        if w.is_causal:
            t = balanced(t, n, blocks * g[6])
        head, block = grouped(t, g[6], blocks, g[10])
        return (blocks - 1 - block) * w.rows, head, n % w.entries

    @jit
    def blocks(w: gl.constexpr, g, at):
        """Of keys that the tile sees."""
        seen = g[5]
        if w.is_causal:
            seen = min(seen, max(at[0] + w.rows + g[5] - g[4], 1))
        return gl.cdiv(seen, w.BN)

    @jit
    def steps(w: gl.constexpr, g, at):
        return w.blocks(w, g, at) + 1

    @jit
    def enter(w: gl.constexpr, g, at, room, bar):
        mbarrier.expect(bar, w.consumers * g[0].block_type.nbytes)
        for part in gl.static_range(w.consumers):
            place = room[0].index(w.consumers * at[2] + part)
            tma.async_copy_global_to_shared(g[0], [at[1], at[0] + part * 64, 0], bar, place)

    @jit
    def load(w: gl.constexpr, g, at, k, room, slot, bar):
        head, block = at[1] // g[7], w.blocks(w, g, at) - 1 - k
        if (block >= 0) & (k > 0):
            mbarrier.expect(bar, g[1].block_type.nbytes + g[2].block_type.nbytes)
        else:
            mbarrier.expect(bar, g[1].block_type.nbytes)
        if block >= 0:
            tma.async_copy_global_to_shared(g[1], [head, block * w.BN, 0], bar, room[1].index(slot))
        if k > 0:
            tma.async_copy_global_to_shared(g[2], [head, (block + 1) * w.BN, 0], bar, room[2].index(slot))

    @jit
    def scores(w: gl.constexpr, at, part: gl.constexpr, room, slot):
        """In flight."""
        keys = room[1].index(slot).reshape([w.BN, w.D]).permute((1, 0))
        queries = room[0].index(w.consumers * at[2] + part).reshape([64, w.D])
        zeros = gl.zeros([64, w.BN], gl.float32, w.score_layout)
        return warpgroup_mma(queries, keys, zeros, use_acc=False, is_async=True)

    @jit
    def masked(w: gl.constexpr, g, at, part: gl.constexpr, k, s):
        """What a query does not see is minus infinity."""
        first = (w.blocks(w, g, at) - 1 - k) * w.BN
        key = gl.expand_dims(first + gl.arange(0, w.BN, gl.SliceLayout(0, w.score_layout)), 0)
        seen = key < g[5]
        if w.is_causal:
            query = gl.expand_dims(at[0] + part * 64 + gl.arange(0, 64, gl.SliceLayout(1, w.score_layout)), 1)
            seen = seen & (key <= query + g[5] - g[4])
        return gl.where(seen, s, float("-inf"))

    @jit
    def softmax(w: gl.constexpr, g, s, m):
        """The weights of a block, the new maxima, what older sums are to be multiplied by, the new sum."""
        higher = gl.maximum(m, gl.max(s, 1) * g[8])
        safe = gl.where(higher == float("-inf"), 0.0, higher)
        p = gl.exp2(s * g[8] - gl.expand_dims(safe, 1))
        operand = gl.convert_layout(p.to(g[0].dtype), gl.DotOperandLayout(0, w.layout, 2))
        return operand, higher, gl.exp2(m - safe), gl.sum(p, 1)

    @jit
    def first(w: gl.constexpr, g, at, part: gl.constexpr, room, slot):
        s = warpgroup_mma_wait(0, (w.scores(w, at, part, room, slot),))
        m = gl.full([64], float("-inf"), gl.float32, gl.SliceLayout(1, w.score_layout))
        p, m, _, total = w.softmax(w, g, w.masked(w, g, at, part, 0, s), m)
        return gl.zeros([64, w.D], gl.float32, w.layout), m, total, p

    @jit
    def step(w: gl.constexpr, g, at, part: gl.constexpr, k, state, room, slot, is_head: gl.constexpr):
        acc, m, total, p = state
        s = w.scores(w, at, part, room, slot)
        acc = warpgroup_mma(p, room[2].index(slot).reshape([w.BN, w.D]), acc, is_async=True)
        s = warpgroup_mma_wait(1, (s,))
        if is_head:
            s = w.masked(w, g, at, part, k, s)
        p, m, less, more = w.softmax(w, g, s, m)
        acc = warpgroup_mma_wait(0, (acc,))
        acc = acc * gl.expand_dims(gl.convert_layout(less, gl.SliceLayout(1, w.layout)), 1)
        return acc, m, total * less + more, p

    @jit
    def last(w: gl.constexpr, g, at, part: gl.constexpr, state, room, slot):
        acc, m, total, p = state
        return warpgroup_mma(p, room[2].index(slot).reshape([w.BN, w.D]), acc), m, total

    @jit
    def finish(w: gl.constexpr, g, at, part: gl.constexpr, state, room):
        acc, m, total = state
        row = at[0] + part * 64
        query = row + gl.arange(0, 64, gl.SliceLayout(1, w.score_layout))
        gl.store(g[9] + at[1] * g[4] + query, (m + gl.log2(total)) * LN_2, query < g[4])
        share = gl.convert_layout(1 / gl.where(total > 0, total, 1.0), gl.SliceLayout(1, w.layout))
        acc = acc * gl.expand_dims(share, 1)
        if w.entries == 2:
            tma.store_wait(0)
        room[3].index(part).reshape([64, w.D]).store(acc.to(g[0].dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(g[3], [at[1], row, 0], room[3].index(part))
        if w.entries == 1:
            tma.store_wait(0)


@jit
def attention_kernel(q, k, v, o, S, T, heads, group, scale, sums, together, w: gl.constexpr):
    pipeline(w, (q, k, v, o, S, T, heads, group, scale, sums, together))


def together(keys: Tensor, is_causal: bool) -> int:
    """How many heads of keys (heads, T, D) are walked together: those the cache holds with their values."""
    heads, t, d = keys.shape
    return _together(heads, t * d * keys.element_size(), is_causal)


def _together(heads: int, head_bytes: int, is_causal: bool) -> int:
    if is_causal and head_bytes >= BALANCED_FROM:
        return heads
    return min(max(CACHED_BYTES // (2 * head_bytes), 1), heads)


@functools.cache
def choose(d: int, s: int, t: int, is_causal: bool) -> Attention:
    sizes = STEPS[d] | {"consumers": 2}
    if d == SMALL_HEAD:
        sizes |= {"stages": 3} if is_causal else {"consumers": 3}
    is_askew = is_causal and (t - s) % math.gcd(64 * sizes["consumers"], sizes["BN"]) != 0
    return Attention(D=d, is_causal=is_causal, is_askew=is_askew, **sizes)


def reference(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, scale: float | None = None) -> Tensor:
    group = q.shape[1] // k.shape[1]
    keys, values = (x.float().repeat_interleave(group, 1) for x in (k, v))
    scores = q.float() @ keys.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if not is_causal:
        return (scores.softmax(-1) @ values).to(q.dtype)
    s, t = scores.shape[-2:]
    hidden = torch.ones(s, t, dtype=torch.bool, device=q.device).triu(t - s + 1)
    # A query that sees no key has no weights: its output is zero.
    weights = scores.masked_fill(hidden, -math.inf).softmax(-1).masked_fill(hidden, 0.0)
    return (weights @ values).to(q.dtype)


@op("attention", has_backward=True)
def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool,
    scale: float,
    is_forward_only: bool = False,
) -> tuple[Tensor, Tensor]:
    """Forward only, torch may answer, and the sums, which nobody reads, hold anything."""
    q, k, v = aligned(q), aligned(k), aligned(v)
    batch, heads, s, d = q.shape
    _, kv_heads, t, _ = k.shape
    o, sums = torch.empty_like(q), q.new_empty(batch, heads, s, dtype=torch.float32)
    call = call_of(attention_kernel, q, k, v, is_causal, scale, o.data_ptr(), sums.data_ptr())
    if again(call, q):
        return o, sums
    if is_forward_only and _is_torchs(q, k, is_causal, ""):
        return _by_torch(q, k, v, is_causal, scale).contiguous(), sums
    work = choose(d, s, t, is_causal)
    few, many = (1, 64, d), (1, work.BN, d)
    described = describe(q, few), describe(k, many), describe(v, many), describe(o, few)
    group = heads // kv_heads
    close = group * _together(batch * kv_heads, t * d * k.element_size(), is_causal)
    arguments = (*described, s, t, batch * heads, group, scale * LOG2_E, sums, close)
    programs = min(-(-s // work.rows) * batch * heads, multiprocessors(q))
    launch(attention_kernel, programs, arguments, work, q, call)
    return o, sums


def _is_torchs(q: Tensor, k: Tensor, is_causal: bool, gradients: str) -> bool:
    (batch, heads, s, d), (_, kv_heads, t, _) = q.shape, k.shape
    if is_causal and s != t:  # torch counts its diagonal from the other end
        return False
    kind = f"{bits(q)} D={d}{' causal' if is_causal else ''}{gradients}"
    return is_torchs("attention", kind, q.device, heads=batch * heads, group=heads // kv_heads, s=s, t=t)


@_attention.register_fake
def _(q, k, v, is_causal, scale, is_forward_only=False):
    return torch.empty_like(q), q.new_empty(q.shape[:-1], dtype=torch.float32)


def _keep(ctx, inputs, output) -> None:
    q, k, v, ctx.is_causal, ctx.scale, ctx.is_forward_only = inputs
    ctx.save_for_backward(q, k, v, *output)


def _backward(ctx, grad, _):
    from assay.tiles.kernels.attention_backward import attention_backward  # which is made of this one

    if ctx.is_forward_only:
        raise RuntimeError("assay::attention was called forward only: it has kept nothing for gradients")
    q, k, v, o, sums = ctx.saved_tensors
    grads = attention_backward(grad.contiguous(), q, k, v, o, sums, ctx.is_causal, ctx.scale)
    return *grads, None, None, None


_attention.register_autograd(_backward, setup_context=_keep)


def attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, scale: float | None = None) -> Tensor:
    """Q (batch, heads, S, D) against K and V (batch, kv_heads, T, D); each of them serves heads /
    kv_heads queries. The scale is above 0; D**-0.5 unless given.

    Where this is no Hopper, plain Triton answers, and says so. For head sizes other than 64, 128 and 256
    (which has no gradients), if gradients are needed on another GPU, or where torch was measured to be
    faster, it is torch's own attention.
    """
    need_alike(q, k, v, of=(torch.bfloat16, torch.float16))
    wide, narrow = q.shape, k.shape
    if not (len(wide) == len(narrow) == 4 and narrow == v.shape and wide[::3] == narrow[::3]):
        shapes = ", ".join(str(list(x.shape)) for x in (q, k, v))
        raise Unsupported(f"{shapes}: want (batch, heads, S, D) and twice (batch, kv_heads, T, D)")
    if narrow[1] == 0 or wide[1] % narrow[1] or wide[1] // narrow[1] > MOST_HEADS:
        raise Unsupported(f"{wide[1]} heads cannot share {narrow[1]}")
    need_switch(is_causal)
    scale = need_scale(scale, wide[3])
    if not q.is_cuda or q.numel() == 0 or k.numel() == 0:
        return reference(q, k, v, is_causal, scale)
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    if wide[0] * wide[1] > MOST_HEADS:
        return _in_parts(q, k, v, is_causal, scale)
    d, is_hopper = wide[3], runs_on_hopper(q, k, v)
    most = MOST_GRADIENT_SIZE if is_hopper else 0
    records = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    if d not in STEPS or (d > most and records):
        return _by_torch(q, k, v, is_causal, scale)
    if not is_hopper:
        return plain.told("attention", plain.plain_attention, q.device)(q, k, v, is_causal, scale)
    return _on_hopper(q, k, v, is_causal, scale, records)


def _in_parts(q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float) -> Tensor:
    """As many heads at a time as a grid has, and those together that share keys."""
    group = q.shape[1] // k.shape[1]
    alone = q.view(-1, group, *q.shape[2:]), *(x.flatten(0, 1).unsqueeze(1) for x in (k, v))
    parts = zip(*(x.split(MOST_HEADS // group) for x in alone), strict=True)
    return torch.cat([attention(*part, is_causal, scale) for part in parts]).view(q.shape)


def _on_hopper(q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float, records: bool) -> Tensor:
    """With gradients, both ways are torch's or neither: their time was measured as one."""
    is_free = records and not torch.are_deterministic_algorithms_enabled()
    if is_free and _is_torchs(q, k, is_causal, " with gradients"):
        return _by_torch(q, k, v, is_causal, scale)
    return _attention(q, k, v, is_causal, scale, not records)[0]


def _by_torch(q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float | None) -> Tensor:
    if is_causal and q.shape[2] != k.shape[2]:  # torch counts its diagonal from the other end
        return reference(q, k, v, is_causal, scale)
    return scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scale, enable_gqa=True)


def inputs(
    batch: int, heads: int, kv_heads: int, s: int, t: int, d: int, is_causal: bool, device: str
) -> tuple[Tensor | bool, ...]:
    q = torch.randn(batch, heads, s, d, device=device).bfloat16()
    k, v = (torch.randn(batch, kv_heads, t, d, device=device).bfloat16() for _ in range(2))
    return q, k, v, is_causal


def cost(batch: int, heads: int, kv_heads: int, s: int, t: int, d: int, is_causal: bool) -> Cost:
    """A causal problem has the products of those pairs that see each other."""
    pairs = s * t - s * (s - 1) // 2 if is_causal else s * t
    return Cost(4 * batch * d * (heads * s + kv_heads * t), 4 * batch * heads * pairs * d)


def _sizes(s: int, d: int, is_causal: bool) -> dict[str, int | bool]:
    return {
        "batch": 16384 // s, "heads": 16, "kv_heads": 16, "s": s, "t": s, "d": d, "is_causal": is_causal
    }  # fmt: skip


ENTRY = Kernel(
    name="attention",
    formula="softmax(scale * Q K^T) V",
    run=attention,
    reference=reference,
    inputs=inputs,
    cases=(
        {"batch": 1, "heads": 2, "kv_heads": 1, "s": 200, "t": 300, "d": 64, "is_causal": True},
        {"batch": 2, "heads": 2, "kv_heads": 2, "s": 130, "t": 70, "d": 128, "is_causal": False},
    ),
    sizes=tuple(_sizes(s, d, c) for d in (128, 64) for c in (False, True) for s in (2048, 4096, 8192, 16384)),
    cost=cost,
)
