"""Rows of the table: attention, with gradients, on pages, and on packed sequences."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

from assay.tiles.table_row import Row, half

CUDNN = """if q.dtype == torch.float64 or not q.is_cuda:
    # The scores of all heads at once are more than there is memory for.
    heads = zip(*(x.flatten(0, 1)[:, None] for x in (q, k, v)))
    made = [F.scaled_dot_product_attention(*head, is_causal={causal}) for head in heads]
    return torch.stack(made).view(q.shape)
with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
    return F.scaled_dot_product_attention(q, k, v, is_causal={causal})"""


def attention(s: int, d: int, is_causal: bool, *, batch: int, heads: int) -> Row:
    return Row(
        **_beside_cudnn("attention", s, d, is_causal, batch, heads),
        names="q, k, v",
        body=CUDNN.format(causal=is_causal),
        inputs=", ".join([half(batch, heads, s, d)] * 3),
        call=f"attention(q, k, v, is_causal={is_causal})",
    )


def _beside_cudnn(what: str, s: int, d: int, is_causal: bool, batch: int, heads: int) -> dict[str, Any]:
    return {
        "label": f"{what} D={d} S={s}{' causal' if is_causal else ''}",
        "kernel": "attention",
        "sizes": {"batch": batch, "heads": heads, "kv_heads": heads, "s": s, "t": s, "d": d}
        | {"is_causal": is_causal},
        "reference": "cuDNN attention",
    }


GRADIENTS = '''
def gradients(attend, q, k, v, do):
    """Whatever mode the call is made in."""
    with torch.inference_mode(False), torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        return torch.autograd.grad(attend(*leaves), leaves, do)
'''
GRADIENT_FILES = (
    "assay.tiles.kernels.attention_backward",
    "assay.tiles.kernels.attention_one_walk",
    "assay.tiles.kernels.attention_causal_walk",
    "assay.tiles.kernels.attention_two_walks",
)
CUDNN_FORWARD_AND_BACKWARD = """
def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal={causal})


def attend_by_cudnn(q, k, v):
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return attend(q, k, v)


def by_cudnn(*tensors):
    return gradients(attend_by_cudnn, *tensors)


def of_a_head(*tensors):
    return gradients(attend, *(x[None] for x in tensors))
"""
CUDNN_BACKWARD = '''
def by_cudnn(*tensors):
    q, k, v, do, o, logarithms = (x.contiguous() for x in tensors)
    seed, length = torch.empty((), dtype=torch.int64, device=q.device), q.shape[2]
    kept = o, logarithms[..., None], seed, seed, None, None, None, length, length, 0.0, {causal}
    return torch.ops.aten._scaled_dot_product_cudnn_attention_backward(do, q, k, v, *kept)


def of_a_head(*tensors):
    """As the formula has it: weights from the logarithms of their sums."""
    logarithms = tensors[-1]
    q, k, v, do, o = (x.to(logarithms.dtype) for x in tensors[:-1])
    scale = q.shape[-1] ** -0.5
    weights = (q @ k.mT * scale - logarithms[:, None]).exp(){seen}
    slopes = weights * (do @ v.mT - (do * o).sum(-1, keepdim=True)) * scale
    return [x.to(tensors[0].dtype) for x in (slopes @ k, slopes.mT @ q, weights.mT @ do)]
'''
HEAD_BY_HEAD = '''

def head_by_head(*tensors):
    """The weights of all heads at once are more than there is memory for."""
    heads = zip(*(x.flatten(0, 1) for x in tensors), strict=True)
    made = zip(*(of_a_head(*head) for head in heads), strict=True)
    return tuple(torch.stack(each).view(x.shape) for each, x in zip(made, tensors))
'''
OUR_BACKWARD = """
from assay.tiles.kernels.attention_backward import attention_backward


def backward(*tensors, is_causal):
    q, k, v, do, o, logarithms = (x.contiguous() for x in tensors)
    return attention_backward(do, q, k, v, o, logarithms, is_causal, q.shape[-1] ** -0.5)
"""


def forward_and_backward(s: int, d: int, is_causal: bool, *, batch: int, heads: int) -> Row:
    """Seven tensors in place of a forward pass's four."""
    return _gradients(
        _beside_cudnn("attention forward and backward", s, d, is_causal, batch, heads),
        names="q, k, v, do",
        inputs=", ".join([half(batch, heads, s, d)] * 4),
        call=f"gradients(lambda *x: attention(*x, is_causal={is_causal}), q, k, v, do)",
        shared=GRADIENTS,
        setup=CUDNN_FORWARD_AND_BACKWARD.format(causal=is_causal),
        bytes_times=7 / 4,
    )


def backward(s: int, d: int, is_causal: bool, *, batch: int, heads: int) -> Row:
    """Eight tensors in place of four. Outputs and the logarithms of sums are drawn like the others, these
    about as if all keys were seen."""
    logarithms = f"0.1 * torch.randn({batch}, {heads}, {s}) + {math.log(s) + 0.5:.2f}"
    return _gradients(
        _beside_cudnn("attention backward", s, d, is_causal, batch, heads),
        names="q, k, v, do, o, logarithms",
        inputs=", ".join([*[half(batch, heads, s, d)] * 5, logarithms]),
        call=f"backward(q, k, v, do, o, logarithms, is_causal={is_causal})",
        setup=CUDNN_BACKWARD.format(causal=is_causal, seen=".tril()" if is_causal else ""),
        candidate_setup=OUR_BACKWARD,
        bytes_times=8 / 4,
        runs_entry=False,
    )


def _gradients(known: dict[str, Any], *, names: str, setup: str, **texts: Any) -> Row:
    """Five products are needed, where a forward pass has two."""
    return Row(
        **known,
        names=names,
        setup=setup + HEAD_BY_HEAD,
        body=f"""if q.dtype == torch.float64 or not q.is_cuda:
    return head_by_head({names})
return by_cudnn({names})""",
        flops_times=5 / 2,
        more=GRADIENT_FILES,
        **texts,
    )


PAGES = """keys, values = (x[table.long()].flatten(1, 2).transpose(1, 2) for x in (k, v))
seen = torch.arange(keys.shape[2], device=q.device) < lengths[:, None]
queries = q.unflatten(1, (keys.shape[1], -1))
return F.scaled_dot_product_attention(queries, keys, values, attn_mask=seen[:, None, None]).flatten(1, 2)"""


def decode_attention(
    *, batch: int, heads: int, kv_heads: int, d: int, page_size: int, least: int, length: int
) -> Row:
    """The queries that share a key are the reference's rows: it has no copies of keys to make for them."""
    most = -(-length // page_size)
    pages = half(batch * most, page_size, kv_heads, d)
    table = f"torch.randperm({batch * most}).int().view({batch}, {most})"
    lengths = f"torch.tensor({_lengths(batch, least, length)}, dtype=torch.int32)"
    sizes = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "d": d, "page_size": page_size}
    return Row(
        label=f"decode_attention {batch}x{heads}/{kv_heads} D={d} keys {least}-{length}",
        kernel="decode_attention",
        sizes=sizes | {"least": least, "length": length},
        reference="torch: gather, attention",
        names="q, k, v, table, lengths",
        body=PAGES,
        inputs=f"{half(batch, heads, d)}, {pages}, {pages}, {table}, {lengths}",
        call="decode_attention(q, k, v, table, lengths)",
    )


PACKED = '''
def one_by_one(q, k, v, ends):
    """Each sequence for itself."""
    made = []
    for first, end in zip(ends.tolist(), ends.tolist()[1:]):
        own = (x[first:end].transpose(0, 1) for x in (q, k, v))
        out = F.scaled_dot_product_attention(*own, is_causal={causal}, enable_gqa=True)
        made.append(out.transpose(0, 1))
    return torch.cat(made)
'''


def varlen_attention(
    *, batch: int, heads: int, kv_heads: int, d: int, least: int, length: int, is_causal: bool
) -> Row:
    lengths = _lengths(batch, least, length)
    ends = f"torch.tensor({list(accumulate(lengths, initial=0))}, dtype=torch.int32)"
    q, k = half(sum(lengths), heads, d), half(sum(lengths), kv_heads, d)
    sizes = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "d": d, "least": least, "length": length}
    flash = f"q, k, v, ends, ends, {length}, {length}, 0.0, {is_causal}, False"
    return Row(
        label=f"varlen_attention {batch} of {least}-{length} D={d}{' causal' if is_causal else ''}",
        kernel="varlen_attention",
        sizes=sizes | {"more": 0, "is_causal": is_causal},
        reference="torch, flash varlen",
        names="q, k, v, ends",
        body=f"""if q.dtype == torch.float64 or not q.is_cuda:
    return one_by_one(q, k, v, ends)
return torch.ops.aten._flash_attention_forward({flash})[0]""",
        inputs=f"{q}, {k}, {k}, {ends}",
        call=f"varlen_attention(q, k, v, ends, ends, is_causal={is_causal})",
        setup=PACKED.format(causal=is_causal),
    )


def _lengths(batch: int, least: int, length: int) -> list[int]:
    """As the catalog's costs have them: from the longest to the shortest in even steps."""
    return [length - (length - least) * i // max(batch - 1, 1) for i in range(batch)]
