"""Rows of the table: what takes the place of attention on long sequences."""

from __future__ import annotations

from assay.tiles.table_row import Row, half

WIDE = """
def wide(x):
    return x if x.dtype == torch.float64 else x.float()
"""


def long_convolution(*, batch: int, heads: int, length: int) -> Row:
    """Filters that fade, as learned ones do."""
    fade = f"torch.exp(-4 * torch.arange({length}) / {length}) * {length}**-0.5"
    return Row(
        label=f"long_convolution {batch}x{heads}x{length}",
        kernel="long_convolution",
        sizes={"batch": batch, "heads": heads, "length": length},
        reference="torch.fft",
        names="u, k",
        body=f"""both = torch.fft.rfft(wide(u), {2 * length}) * torch.fft.rfft(wide(k), {2 * length})
return torch.fft.irfft(both, {2 * length})[..., :{length}].to(u.dtype)""",
        inputs=f"{half(batch, heads, length)}, (torch.randn({heads}, {length}) * {fade}).bfloat16()",
        call="long_convolution(u, k)",
        setup=WIDE,
    )


SCORED = '''
def scored(q, k, v, scores_of):
    """One batch entry after the other: all scores at once are more than there is memory for."""
    made = []
    for one in zip(wide(q), wide(k), wide(v), strict=True):
        scores = scores_of(one[0], one[1]).tril()
        made.append((scores @ one[2]) / (scores.sum(-1, keepdim=True) + 1e-6))
    return torch.stack(made).to(q.dtype)
'''
BASED = '''
def scores_of(q, k):
    """The first terms of exp(q.k / 4)."""
    a = q @ k.mT / 4
    return 1 + a + a * a / 2
'''
HEDGEHOG = """
def features(x):
    return torch.cat([x.softmax(-1), (-x).softmax(-1)], -1)


def scores_of(q, k):
    return features(q) @ features(k).mT
"""


def based(function: str, *, batch: int, heads: int, length: int, dv: int = 64) -> Row:
    """`function` is of `fla.ops.based`: which is faster depends on the length."""
    return Row(
        label=f"based {batch}x{heads}x{length} ({function.removesuffix('_based')})",
        kernel="based",
        sizes={"batch": batch, "heads": heads, "length": length, "d": 16, "dv": dv},
        reference="flash-linear-attention",
        names="q, k, v",
        body=f"""if q.dtype == torch.float64 or not q.is_cuda:
    return scored(q, k, v, scores_of)
from fla.ops.based import {function}

return {function}(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)""",
        inputs=_heads(batch, heads, length, 16, dv),
        call="based(q, k, v)",
        setup=WIDE + SCORED + BASED,
        more=("assay.tiles.kernels.based_hopper",),
    )


def hedgehog(*, batch: int, heads: int, length: int, d: int = 64, dv: int = 64) -> Row:
    """The library's own sums of weights are bf16, which leaves little of them: they are made here."""
    return Row(
        label=f"hedgehog {batch}x{heads}x{length}",
        kernel="hedgehog",
        sizes={"batch": batch, "heads": heads, "length": length, "d": d, "dv": dv},
        reference="flash-linear-attention",
        names="q, k, v",
        body="""if q.dtype == torch.float64 or not q.is_cuda:
    return scored(q, k, v, scores_of)
from fla.ops.linear_attn import chunk_linear_attn

q, k, v = (x.transpose(1, 2) for x in (features(q), features(k), v))
out = chunk_linear_attn(q, k, v, scale=1.0, normalize=False)[0]
weights = (q * k.float().cumsum(1)).sum(-1, keepdim=True)
return (out / (weights + 1e-6)).to(q.dtype).transpose(1, 2)""",
        inputs=_heads(batch, heads, length, d, dv),
        call="hedgehog(q, k, v)",
        setup=WIDE + SCORED + HEDGEHOG,
    )


def _heads(batch: int, heads: int, length: int, d: int, dv: int) -> str:
    return ", ".join(half(batch, heads, length, width) for width in (d, d, dv))


SCANNED = '''
def scanned(x, dt, a, b, c, d):
    """Chunk by chunk; decays are sums of what lies between, as differences of large sums lose digits. There
    is no answer where a state would grow, of which mamba_ssm knows nothing."""
    dt, a = torch.where(dt < 0, torch.nan, dt), torch.where(a > 0, torch.nan, a)
    b, c = (t.repeat_interleave(x.shape[2] // b.shape[2], 2) for t in (b, c))
    x, dt, b, c = (wide(t).transpose(1, 2) for t in (x, dt, b, c))
    state, made = 0 * (b[:, :, :1].mT @ x[:, :, :1]), []
    for value, step, inward, outward in zip(*(t.split(64, 2) for t in (x, dt, b, c)), strict=True):
        decay = step * a[:, None]
        between = decay[..., None].expand(*decay.shape, decay.shape[2]).tril(-1).cumsum(-2).exp().tril()
        since = decay.cumsum(-1).exp()[..., None]
        weights = outward @ inward.mT * between * step[..., None, :]
        made.append(weights @ value + outward @ state * since)
        grown = inward * (between[..., -1, :] * step)[..., None]
        state = state * since[:, :, -1:] + grown.mT @ value
    return (torch.cat(made, 2) + d[:, None, None] * x).transpose(1, 2)
'''


def mamba2(*, batch: int, length: int, heads: int, p: int = 64, groups: int = 1, n: int = 128) -> Row:
    """Steps and decays as a model is initialised with: dt from 0.001 to 0.1, a from -1 to -16."""
    dt, a = f"0.001 * 100 ** torch.rand({batch}, {length}, {heads})", f"-1 - 15 * torch.rand({heads})"
    shared = half(batch, length, groups, n)
    return Row(
        label=f"mamba2 {batch}x{length}x{heads}x{p} N={n}",
        kernel="mamba2",
        sizes={"batch": batch, "length": length, "heads": heads, "p": p, "groups": groups, "n": n},
        reference="mamba_ssm",
        names="x, dt, a, b, c, d",
        body="""if x.dtype == torch.float64 or not x.is_cuda:
    return scanned(x, dt, a, b, c, d).to(x.dtype)
from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

return mamba_chunk_scan_combined(x, dt, a, b, c, chunk_size=256, D=d)""",
        inputs=f"{half(batch, length, heads, p)}, {dt}, {a}, {shared}, {shared}, torch.randn({heads})",
        call="mamba2(x, dt, a, b, c, d)",
        setup=WIDE + SCANNED,
        more=("assay.tiles.kernels.mamba2_hopper", "assay.tiles.kernels.mamba2_ends"),
    )
