"""Tile kernels run in the emulator on small ragged sizes, against plain torch."""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch.nn.functional import conv2d, gelu, max_pool2d, pad, scaled_dot_product_attention, silu

from assay.tiles.emulate import Descriptor, emulate
from assay.tiles.kernels import linear_attention, mamba2

ACTIVATIONS = {
    "": lambda x: x,
    "relu": torch.relu,
    "silu": silu,
    "gelu": lambda x: gelu(x, approximate="tanh"),
}


def relative(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((got.float() - wanted).norm() / wanted.norm())


def worst(*errors: float) -> float:
    """NaN if one is: Python's own maximum may pass over it."""
    return float(torch.tensor(errors).max())


def gemm_error(
    module: types.ModuleType, m: int, n: int, k: int, seed: int, *, dtype: torch.dtype = torch.bfloat16, **how
) -> float:
    """By how much C is off; a product with a bias, an activation and a residual where `how` says so."""
    torch.manual_seed(seed)
    work = module.Gemm(**{"BN": 128, **how})
    a, b, residual = (torch.randn(shape).to(dtype) for shape in ((m, k), (k, n), (m, n)))
    bias, c = torch.randn(n).to(dtype), torch.full((m, n), math.nan).to(dtype)
    given = b.T.contiguous() if work.transposed else b
    block = [work.BN, work.BK] if work.transposed else [work.BK, work.BN]
    descriptors = Descriptor(a, [64, work.BK]), Descriptor(given, block), Descriptor(c, [64, work.BN])
    emulate(module.gemm_kernel, (2,), *descriptors, m, n, k, bias, residual, work.constant, seed=seed)
    wanted = a.float() @ b.float() + (bias.float() if work.has_bias else 0)
    wanted = ACTIVATIONS[work.activation](wanted) + (residual.float() if work.has_residual else 0)
    return relative(c, wanted)


def attention_error(
    module: types.ModuleType, heads: int, kv_heads: int, s: int, t: int, seed: int, *, d: int = 64, **how
) -> float:
    """By how much O or the logarithms of the sums are off."""
    torch.manual_seed(seed)
    how = {"D": d, "BN": 64, "consumers": 2, **how}
    work = module.Attention(**how, is_askew=(t - s) % math.gcd(64 * how["consumers"], how["BN"]) != 0)
    q = torch.randn(heads, s, d).bfloat16()
    k, v = (torch.randn(kv_heads, t, d).bfloat16() for _ in range(2))
    o, sums = torch.full_like(q, math.nan), torch.full((heads, s), math.nan)
    descriptors = (Descriptor(x, [1, rows, d]) for x, rows in ((q, 64), (k, work.BN), (v, work.BN), (o, 64)))
    group, scale = heads // kv_heads, math.log2(math.e) / math.sqrt(d)
    emulate(
        module.attention_kernel,
        (2,),
        *descriptors,
        s,
        t,
        heads,
        group,
        scale,
        sums,
        2 * group,
        work.constant,
        seed=seed,
    )
    mask = (
        torch.ones(s, t, dtype=torch.bool).tril(t - s)
        if work.is_causal
        else torch.ones(s, t, dtype=torch.bool)
    )
    keys, values = (x.float().repeat_interleave(group, 0) for x in (k, v))
    wanted = scaled_dot_product_attention(q.float(), keys, values, attn_mask=mask)
    scores = (q.float() @ keys.mT * scale).masked_fill(~mask, -math.inf)
    told = torch.logsumexp(scores * math.log(2), -1)
    return worst(relative(o, wanted), relative(sums, told))


def gradient_error(
    module: types.ModuleType,
    heads: int,
    kv_heads: int,
    s: int,
    t: int,
    seed: int,
    *,
    d: int = 64,
    is_causal: bool = False,
) -> float:
    """By how much dQ, dK or dV is off."""
    torch.manual_seed(seed)
    q, do = (torch.randn(heads, s, d).bfloat16() for _ in range(2))
    k, v = (torch.randn(kv_heads, t, d).bfloat16() for _ in range(2))
    group, scale = heads // kv_heads, d**-0.5
    leaves = [x.float().requires_grad_() for x in (q, k, v)]
    mask = torch.ones(s, t, dtype=torch.bool).tril(t - s) if is_causal else torch.ones(s, t, dtype=torch.bool)
    keys, values = (x.repeat_interleave(group, 0) for x in leaves[1:])
    scores = (leaves[0] @ keys.mT * scale).masked_fill(~mask, -math.inf)
    o = scores.softmax(-1).nan_to_num(0.0) @ values
    o.backward(do.float())
    logarithms, products = (
        torch.logsumexp(scores, -1).detach() / math.log(2),
        (do.float() * o.detach()).sum(-1),
    )
    sums = pad(logarithms.masked_fill(logarithms == -math.inf, math.inf), (0, -s % 128), value=math.inf)
    delta = pad(products, (0, -s % 128))
    given = (q, do, k, v), sums, delta, is_causal, seed
    made = gradients_at_once(module, *given) if hasattr(module, "arguments_of") else two_walks(module, *given)
    return worst(*(relative(got, leaf.grad) for got, leaf in zip(made, leaves, strict=True)))


def two_walks(
    module: types.ModuleType,
    tensors: tuple[torch.Tensor, ...],
    sums: torch.Tensor,
    delta: torch.Tensor,
    is_causal: bool,
    seed: int,
) -> list[torch.Tensor]:
    """dQ, dK and dV."""
    q, do, k, v = tensors
    (heads, s, d), (kv_heads, t, _) = q.shape, k.shape
    group, scales = heads // kv_heads, (d**-0.5 * math.log2(math.e), d**-0.5)
    made = [torch.full_like(x, math.nan) for x in (q, k, v)]
    by_query = module.QueryGradient(D=d, is_causal=is_causal, is_askew=(t - s) % 64 != 0)
    by_key = module.KeyGradient(D=d, is_causal=is_causal, group=group)
    q_, do_, k_, v_ = (Descriptor(x, [1, by_query.BN, d]) for x in (q, do, k, v))
    dq, dk, dv = (Descriptor(x, [1, 64, d]) for x in made)
    given = (q_, k_, v_, dq, s, t, heads, group, scales[0], sums, 2 * group, do_, delta, scales[1])
    emulate(module.query_gradient_kernel, (2,), *given, by_query.constant, seed=seed)
    given = (q_, do_, k_, v_, dk, dv, s, t, kv_heads, group, *scales, sums, delta, 1)
    emulate(module.key_gradient_kernel, (2,), *given, by_key.constant, seed=seed)
    return made


def gradients_at_once(
    module: types.ModuleType,
    tensors: tuple[torch.Tensor, ...],
    sums: torch.Tensor,
    delta: torch.Tensor,
    is_causal: bool,
    seed: int,
) -> list[torch.Tensor]:
    """dQ, dK and dV. Causal, heads are walked one by one up to the last, by two programs that take turns, or
    by three, one after the other."""
    q, do, k, v = tensors
    heads, s, d = q.shape
    dk, dv = torch.full_like(k, math.nan), torch.full_like(v, math.nan)
    flat = {"q": q, "do": do, "k": k, "v": v, "dk": dk, "dv": dv}
    kept, sums_of_dq = torch.stack([sums, delta]), torch.zeros(sums.numel() * d)
    order = order_of(k.shape[0] * -(-k.shape[1] // 128))

    def launch(kernel: Any, programs: int, given: tuple, work: Any, on: Any, waits_itself: bool = False):
        assert len(given) == len(kernel.arg_names) - 1
        late = (kept, sums_of_dq, order) if waits_itself else ()
        at_once = waits_itself and seed % 2 == 0
        emulate(kernel, (programs,), *given, work.constant, seed=seed, late=late, at_once=at_once)

    stubs = {"launch": launch, "multiprocessors": lambda tensor: 2 + seed % 2, "describe": Descriptor}
    if is_causal:
        stubs |= {"TOGETHER": heads // k.shape[0]}
    describing = sys.modules[module.arguments_of.__module__]
    with mock.patch.multiple(module, **stubs), mock.patch.object(describing, "describe", Descriptor):
        if is_causal:
            module.causal_gradients(flat, kept, sums_of_dq, order, d**-0.5)
        else:
            module.gradients(flat, kept, sums_of_dq, d**-0.5)
    return [dq_of_sums(sums_of_dq, heads, s, d) * d**-0.5, dk, dv]


def order_of(tiles: int) -> torch.Tensor:
    """The numbers of tiles and of the end, four times each, and the counter."""
    return torch.tensor([*range(tiles + 1), 0], dtype=torch.int32).repeat_interleave(4)


def dq_of_sums(sums: torch.Tensor, heads: int, s: int, d: int) -> torch.Tensor:
    """Sums lie as a consumer's threads hold them: bits of columns and rows, by turns."""
    blocks = sums.view(heads, -1, d // 64, 8, 4, 8, 4, 2, 2)
    return blocks.permute(0, 1, 4, 7, 5, 2, 3, 6, 8).reshape(heads, -1, d)[:, :s]


def mamba2_error(
    module: types.ModuleType, batch: int, length: int, heads: int, groups: int, seed: int, **how: Any
) -> float:
    """By how much y is off.

    Args:
        how: `processors`, and what `mamba2_inputs` takes.
    """
    processors = how.pop("processors", 5)
    given = mamba2_inputs(batch, length, heads, groups, **how)
    with emulated_launches(module, processors, seed):
        got = module.mamba2_on_hopper(*given)
    return relative(got, mamba2.reference(*(x if x is None else x.float() for x in given)))


def mamba2_inputs(
    batch: int,
    length: int,
    heads: int,
    groups: int,
    *,
    dtype: torch.dtype = torch.bfloat16,
    has_d: bool = True,
    strength: float = 1.0,
    has_rests: bool = False,
    is_sliced: bool = False,
) -> tuple[torch.Tensor | None, ...]:
    """Args:
    strength: what steps are multiplied by.
    has_rests: every seventh step is zero.
    is_sliced: x, b and c are parts of one tensor, and dt of another.
    """
    sizes = {"batch": batch, "length": length, "heads": heads, "p": 64, "groups": groups, "n": 128}
    x, dt, a, b, c, d = mamba2.inputs(**sizes, dtype=dtype, device="cpu")
    dt *= strength
    if has_rests:
        dt[:, ::7] = 0
    if is_sliced:
        widths = heads * 64, groups * 128, groups * 128
        parts = torch.cat([t.flatten(2) for t in (x, b, c)], 2).split(widths, 2)
        x, b, c = (part.unflatten(2, (-1, n)) for part, n in zip(parts, (64, 128, 128), strict=True))
        dt = torch.cat([dt, dt], 2)[:, :, :heads]
    return x, dt, a, b, c, d if has_d else None


@contextmanager
def emulated_launches(module: types.ModuleType, processors: int, seed: int) -> Iterator[None]:
    """The host's part of a kernel launches into the emulator; what nobody has written is NaN."""
    before: list[torch.Tensor] = []
    new_empty = torch.Tensor.new_empty

    def launch(
        kernel: Any, programs: int, given: tuple, work: Any, on: Any, call=None, *, waits_itself=False
    ):
        assert len(given) == len(kernel.arg_names) - 1
        late = tuple(before) if waits_itself else ()
        emulate(kernel, (programs,), *given, work.constant, seed=seed, late=late)
        before[:] = [one for one in given if isinstance(one, torch.Tensor)]

    def poisoned(self: torch.Tensor, *shape: Any, **options: Any) -> torch.Tensor:
        return new_empty(self, *shape, **options).fill_(math.nan)

    stubs = {"launch": launch, "describe": Descriptor, "multiprocessors": lambda tensor: processors}
    with mock.patch.multiple(module, **stubs), mock.patch.object(torch.Tensor, "new_empty", poisoned):
        yield


def based_error(
    module: types.ModuleType,
    batch: int,
    heads: int,
    length: int,
    seed: int,
    *,
    dv: int = 64,
    dtype: torch.dtype = torch.bfloat16,
    normalise: bool = True,
    strength: float = 1.0,
    order: str = "",
    processors: int = 5,
    **sizes: int,
) -> float:
    """By how much o is off.

    Args:
        strength: what q and k are multiplied by.
        order: how the inputs lie: "side by side", "askew", or dense.
    """
    torch.manual_seed(seed)
    widths = 16, 16, dv
    if order == "side by side":
        parts = torch.randn(batch, length, heads, sum(widths)).to(dtype).split(widths, 3)
        q, k, v = (part.transpose(1, 2) for part in parts)
    else:
        skipped = int(order == "askew")
        shapes = ((batch, heads, length, n + skipped) for n in widths)
        q, k, v = (torch.randn(shape).to(dtype)[..., skipped:] for shape in shapes)
    if strength != 1:
        q, k = q * strength, k * strength
    with emulated_launches(module, processors, seed):
        got = module.based_on_hopper(q, k, v, normalise, **sizes)
    return relative(got, linear_attention.reference_based(q.float(), k.float(), v.float(), normalise))


def convolution_error(
    module: types.ModuleType,
    n: int,
    channels: int,
    high: int,
    wide: int,
    outputs: int,
    seed: int,
    *,
    window: tuple[int, int] = (3, 3),
    padding: int = 1,
    dilation: int = 1,
    relu: bool = False,
    pooled: bool = False,
    has_bias: bool = True,
    is_last: bool = True,
    dtype: torch.dtype = torch.bfloat16,
    processors: int = 5,
    **sizes: Any,
) -> float:
    """By how much y is off.

    Args:
        is_last: x's channels lie side by side.
        sizes: those of the kernel that are not to be chosen.
    """
    torch.manual_seed(seed)
    form = torch.channels_last if is_last else torch.contiguous_format
    x = torch.randn(n, channels, high, wide).to(dtype).contiguous(memory_format=form)
    weight = (torch.randn(outputs, channels, *window) * (channels * math.prod(window)) ** -0.5).to(dtype)
    bias = torch.randn(outputs).to(dtype) if has_bias else None
    wide_bias = None if bias is None else bias.float()
    wanted = conv2d(x.float(), weight.float(), wide_bias, 1, padding, dilation)
    wanted = wanted.relu() if relu or pooled else wanted
    wanted = max_pool2d(wanted, 2) if pooled else wanted
    y = torch.full(wanted.shape, math.nan, dtype=dtype).contiguous(memory_format=form)
    chosen = module.choose

    def choose(*given: Any, **ends: bool) -> Any:
        return replace(chosen(*given, **ends), **sizes)

    geometry = [1, 1, padding, padding, dilation, dilation]
    with emulated_launches(module, processors, seed), mock.patch.object(module, "choose", choose):
        got = module.convolved_on_hopper(x, weight, bias, y, geometry, relu=relu or pooled, pooled=pooled)
    return relative(got, wanted)
